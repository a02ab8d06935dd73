package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"mongodlm/distlock"
)

// A queue is who waits in the collection of locks.
type queue struct {
	Database  string      `json:"database"`
	Never     bool        `json:"neverUsed"` // false: the listing tells
	Waiters   []waiterRow `json:"waiters"`
	Malformed problemList `json:"malformed"` // empty: the listing has them
}

// A waiterRow is one who waits. Its texts are as stored.
type waiterRow struct {
	Name    string     `json:"name"`  // of the lock
	Place   int        `json:"place"` // 1 is the next in line
	Mode    string     `json:"mode"`  // exclusive, shared or permit
	Limit   int        `json:"limit"` // the permits asked for; 0 but in mode permit
	Process string     `json:"process"`
	Who     string     `json:"who"`
	Why     string     `json:"why"`
	Since   *time.Time `json:"since"` // server's clock when it came; null when unknown
	// WaitedMS and PingAgeMS are by the server's clock; null when unknown.
	WaitedMS  *int64   `json:"waitedMS"`
	PingAgeMS *int64   `json:"pingAgeMS"`
	Marks     []string `json:"marks"`
}

func (q *queue) add(w distlock.LockInfo) {
	q.Waiters = append(q.Waiters, waiterRow{
		Name: w.Name, Place: w.Place, Mode: w.Mode, Limit: w.Limit, Process: w.Process, Who: w.Who,
		Why: w.Why, Since: moment(w.Since), WaitedMS: milliseconds(w.Age),
		PingAgeMS: milliseconds(w.PingAge), Marks: marks(w),
	})
}

// print writes the line for a person.
func (q queue) print(w io.Writer, how layout) {
	t := table{columns: []column{
		{title: "LOCK", least: 8}, {title: "PLACE"}, {title: "WAITED"}, {title: "PING"},
		{title: "WAITER", least: 8}, {title: "MODE", idle: "exclusive"},
		{title: "MARKS", idle: "-", least: 6}, {title: "WHY", least: 4}, {title: "CALLER", wide: true},
	}}
	for _, r := range q.Waiters {
		t.rows = append(t.rows, r.columns(how))
	}
	t.print(w, how)
}

// columns are the cells of a row, fit for a terminal.
func (r waiterRow) columns(how layout) []string {
	return []string{
		label(r.Name), fmt.Sprint(r.Place), age(duration(r.WaitedMS)), age(duration(r.PingAgeMS)),
		how.process(r.Process), modeOf(r.Mode, r.Limit), shown(strings.Join(r.Marks, ", "), 60),
		shown(r.Why, 60), shown(strings.TrimPrefix(r.Who, r.Process+":"), 120),
	}
}
