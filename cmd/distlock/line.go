package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// A queue has the waiters in the collection of locks.
type queue struct {
	Waiters []waiterRow `json:"waiters"`
}

// A waiterRow is one waiter. Its strings are as stored.
type waiterRow struct {
	Name    string     `json:"name"`  // the lock's name
	Place   int        `json:"place"` // 1 is the next waiter
	Mode    string     `json:"mode"`  // exclusive, shared or permit
	Limit   int        `json:"limit"` // the requested permits; 0 except in mode permit
	Process string     `json:"process"`
	Who     string     `json:"who"`
	Why     string     `json:"why"`
	Since   *time.Time `json:"since"` // when it queued, by the server's clock; null when unknown
	// WaitedMS and PingAgeMS are measured by the server's clock. They are null when unknown.
	WaitedMS  *int64   `json:"waitedMS"`
	PingAgeMS *int64   `json:"pingAgeMS"`
	Marks     []string `json:"marks"`

	standsBy bool // see [words.StandsBy]
}

func (q *queue) add(w distlock.LockInfo) {
	q.Waiters = append(q.Waiters, waiterRow{
		Name: w.Name, Place: w.Place, Mode: w.Mode, Limit: w.Limit, Process: w.Process, Who: w.Who,
		Why: w.Why, Since: moment(w.Since), WaitedMS: milliseconds(w.Age),
		PingAgeMS: milliseconds(w.PingAge), Marks: marks(w), standsBy: words.StandsBy(w),
	})
}

func (q queue) print(w io.Writer, how layout) {
	t := table{columns: []column{
		{title: "LOCK", least: 8}, {title: "PLACE"}, {title: "WAITED"}, {title: "PING"},
		{title: "WAITER", least: 8}, {title: "MODE", idle: "exclusive", least: 9},
		{title: "MARKS", idle: "-", least: 9}, {title: "WHY", least: 4}, {title: "CALLER", wide: true},
	}}
	for _, r := range q.Waiters {
		t.rows = append(t.rows, r.columns(how))
	}
	t.print(w, how)
}

// printOf writes the queue of one lock. On a terminal it writes a complete sentence for each
// waiter.
func (q queue) printOf(w io.Writer, how layout) {
	if how.width == 0 {
		q.print(w, how)
		return
	}
	for _, r := range q.Waiters {
		var text strings.Builder
		text.WriteString(fmt.Sprintf("%4d  %s waits for %s", r.Place, how.process(r.Process),
			age(duration(r.WaitedMS))))
		if r.Mode != exclusive {
			text.WriteString(", " + modeOf(r.Mode, r.Limit))
		}
		if r.PingAgeMS != nil {
			text.WriteString(", ping " + age(duration(r.PingAgeMS)) + " old")
		}
		for _, mark := range r.Marks {
			text.WriteString(", " + mark)
		}
		wrap(w, how, text.String()+": "+shown(r.Why, longText), "      ")
	}
}

// columns returns the cells of a row, safe for a terminal.
func (r waiterRow) columns(how layout) []string {
	return []string{
		how.label(r.Name), fmt.Sprint(r.Place), age(duration(r.WaitedMS)), age(duration(r.PingAgeMS)),
		how.process(r.Process), modeOf(r.Mode, r.Limit), shown(strings.Join(r.Marks, ", "), 60),
		how.text(r.Why, 60), how.text(strings.TrimPrefix(r.Who, r.Process+":"), 120),
	}
}
