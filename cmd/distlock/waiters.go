package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/distlock"
)

// waiters lists who waits for locks. Like locks it only reads.
type waiters struct {
	connection
	name       string // empty: of all locks
	json, wide bool
}

func (v *waiters) flags(f *pflag.FlagSet) {
	v.connection.flags(f)
	f.BoolVar(&v.json, "json", false, "print the listing as JSON")
	f.BoolVar(&v.wide, "wide", false, wideText)
}

func (v *waiters) accept(c call) error {
	if args := append(c.args, c.after...); len(args) > 0 {
		var err error
		if v.name, err = lockName(args); err != nil {
			return err
		}
	}
	return v.connection.accept(c)
}

func (v *waiters) run(ctx context.Context, s stdio) error {
	return show(ctx, s, &v.connection, v.json, v.wide, v.collect)
}

// A queue is who waits in the collection of locks.
type queue struct {
	Database string `json:"database"`
	// Never is true when the database has no collection of locks.
	Never     bool        `json:"neverUsed"`
	Waiters   []waiterRow `json:"waiters"`
	Malformed problemList `json:"malformed"`

	void string // said instead of an empty table
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

func (v *waiters) collect(ctx context.Context, st *store) (queue, error) {
	found := newQueue(v.database)
	if err := v.gather(ctx, st, &found); err != nil {
		return found, err
	}
	if len(found.Waiters) == 0 {
		if found.void, found.Never = st.void(ctx); !found.Never {
			of := ""
			if v.name != "" {
				of = " for " + named(v.name)
			}
			found.void = fmt.Sprintf("nobody waits%s in database %q", of, v.database)
		}
	}
	return found, nil
}

func newQueue(database string) queue {
	return queue{Database: database, Waiters: []waiterRow{}, Malformed: problemList{}}
}

// gather reads who waits.
func (v *waiters) gather(ctx context.Context, st *store, found *queue) error {
	for w, err := range st.Waiters(ctx) {
		var bad *distlock.MalformedError
		switch {
		case errors.As(err, &bad):
			if v.name == "" || v.name == bad.ID {
				found.Malformed.add(bad)
			}
			continue
		case err != nil:
			return err
		case v.name != "" && v.name != w.Name:
			continue
		}
		found.Malformed.add(w.BadPing)
		found.add(w)
	}
	return nil
}

func (q *queue) add(w distlock.LockInfo) {
	q.Waiters = append(q.Waiters, waiterRow{
		Name: w.Name, Place: w.Place, Mode: w.Mode, Limit: w.Limit, Process: w.Process, Who: w.Who,
		Why: w.Why, Since: moment(w.Since), WaitedMS: milliseconds(w.Age),
		PingAgeMS: milliseconds(w.PingAge), Marks: marks(w),
	})
}

// print writes the listing for a person.
func (q queue) print(w io.Writer, how layout) {
	if q.void != "" {
		fmt.Fprintln(w, q.void)
	} else {
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
	q.Malformed.print(w)
}

// columns are the cells of a row, fit for a terminal.
func (r waiterRow) columns(how layout) []string {
	return []string{
		label(r.Name), fmt.Sprint(r.Place), age(duration(r.WaitedMS)), age(duration(r.PingAgeMS)),
		how.process(r.Process), modeOf(r.Mode, r.Limit), shown(strings.Join(r.Marks, ", "), 60),
		shown(r.Why, 60), shown(strings.TrimPrefix(r.Who, r.Process+":"), 120),
	}
}
