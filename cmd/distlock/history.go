package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
)

// events implements the command history. It only reads.
type events struct {
	lister
	name  string // empty for all locks
	since time.Duration
	limit int
}

func (v *events) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.Func("since",
		"only events of the last `duration`, such as 90m, 48h or 7d, by the server's clock", func(value string) (err error) {
			v.since, err = parseDays(value)
			return err
		})
	f.IntVar(&v.limit, "limit", 100, "the `number` of newest entries to list; 0 for all")
}

func (v *events) accept(c call) error {
	var err error
	if v.name, err = c.optionalLock(); err != nil {
		return err
	}
	switch {
	case v.since < 0 || c.Changed("since") && v.since == 0:
		return fmt.Errorf("--since is %v, must be longer than 0", v.since)
	case v.limit < 0:
		return fmt.Errorf("--limit is %d, must not be negative", v.limit)
	}
	return v.connection.accept(c)
}

func (v *events) run(ctx context.Context, s stdio) error {
	return show(ctx, s, &v.lister, v.collect)
}

type eventList struct {
	Database  string      `json:"database"`
	Events    []eventRow  `json:"events"`
	Limited   bool        `json:"limited"` // more events may exist
	Malformed problemList `json:"malformed"`

	empty string // printed instead of an empty table
}

// An eventRow is an event. Its strings are unescaped, as stored. A field that does not apply is
// empty or 0.
type eventRow struct {
	At       time.Time `json:"at"`    // by the server's clock
	Event    string    `json:"event"` // acquired, granted, taken over, released, lost and so on
	Name     string    `json:"name"`  // the lock's name
	Process  string    `json:"process"`
	Previous string    `json:"previous"` // the process that was taken over, broken or evicted
	Session  string    `json:"session"`
	Fence    int64     `json:"fence"`
	Mode     string    `json:"mode"`
	Leads    bool      `json:"leads"` // the lock belongs to an election
	Why      string    `json:"why"`
	Rule     string    `json:"rule"`
	Evidence string    `json:"evidence"`
	Cause    string    `json:"cause"`
	WaitedMS int64     `json:"waitedMS"` // the wait of an acquisition
	HeldMS   int64     `json:"heldMS"`

	entry history.Entry
}

func newEventList(st *store) eventList {
	return eventList{Database: st.database, Events: []eventRow{}, Malformed: problemList{}}
}

func (v *events) collect(ctx context.Context, st *store) (eventList, error) {
	found := newEventList(st)
	q := history.Query{Name: v.name, Limit: v.limit}
	if v.since > 0 {
		now, err := census.Now(ctx, st.client)
		if err != nil {
			return found, err
		}
		q.Since = cmp.Or(now, clock.System().Now().Wall).Add(-v.since)
	}
	entries, malformed, err := st.read(ctx, q)
	if err != nil {
		return found, err
	}
	for _, e := range entries {
		found.Events = append(found.Events, eventRowOf(e))
	}
	for _, bad := range malformed {
		found.Malformed.add(bad)
	}
	found.Limited = v.limit > 0 && len(found.Events)+len(found.Malformed) >= v.limit
	if len(found.Events) == 0 {
		what := "no history"
		if v.name != "" {
			what += " of lock " + named(v.name)
		}
		if v.since > 0 {
			what += fmt.Sprintf(" in the last %v", v.since)
		}
		found.empty = st.emptyText(ctx, fmt.Sprintf("%s in database %q: no event occurred, or the "+
			"programs do not record events", what, st.database))
	}
	return found, nil
}

func eventRowOf(e history.Entry) eventRow {
	r := eventRow{
		At: e.At, Event: e.Kind, Name: e.Name, Process: e.Process, Previous: e.Previous, Fence: e.Fence,
		Mode: e.Mode, Leads: e.Label == "election", Why: e.Why, Rule: e.Rule, Evidence: e.Evidence,
		Cause: e.Cause, WaitedMS: e.WaitedMS, HeldMS: e.HeldMS,
		entry: e,
	}
	if !e.Session.IsZero() {
		r.Session = e.Session.Hex()
	}
	return r
}

func (c eventList) print(w io.Writer, how layout) {
	if how > 0 && len(c.Events) > 0 {
		c.printLines(w, how)
	} else {
		t := table{empty: c.empty, columns: []column{
			{title: "AT"}, {title: "EVENT", minWidth: 8}, {title: "LOCK", minWidth: 8}, {title: "WHO", minWidth: 8},
			{title: "HELD"}, {title: "WAITED"}, {title: "FROM", blank: "-", minWidth: 8},
			{title: "DETAIL", minWidth: 8}, {title: "FENCE", wide: true}, {title: "WHY", wide: true},
			{title: "MODE", blank: "exclusive", wide: true},
			{title: "SESSION", wide: true},
		}}
		for _, e := range c.Events {
			event, from := e.Event, "-"
			if e.Leads {
				event += " (leader)"
			}
			if e.Previous != "" {
				from = how.process(e.Previous)
			}
			t.rows = append(t.rows, []string{
				instant(e.At), shown(event, 40), label(e.Name), how.process(e.Process), span(e.HeldMS),
				span(e.WaitedMS), from, how.text(cmp.Or(e.Cause, e.Evidence, e.Why), 400),
				fmt.Sprint(e.Fence), how.text(e.Why, 200), modeOf(e.Mode, 0), shown(e.Session, 24),
			})
		}
		t.print(w, how)
	}
	if c.empty == "" && c.Limited {
		fmt.Fprintf(w, "(the newest %d; --limit shows more)\n", len(c.Events))
	}
	c.Malformed.print(w, how)
}

// printLines writes a sentence for each event, and a heading for each day. If the list has events
// of several locks, each sentence also names the lock.
func (c eventList) printLines(w io.Writer, how layout) {
	several := slices.ContainsFunc(c.Events, func(e eventRow) bool {
		return e.Name != c.Events[0].Name
	})
	day := ""
	for _, e := range c.Events {
		if d := e.At.UTC().Format(time.DateOnly); d != day {
			day = d
			fmt.Fprintln(w, day)
		}
		text := e.At.UTC().Format("15:04:05") + "  "
		if several {
			text += label(e.Name) + ": "
		}
		text += words.Sentence(e.entry, how.process)
		if e.Leads {
			text += " (leader)"
		}
		wrap(w, how, text, "          ")
	}
}

// span formats a number of milliseconds. It returns a dash for 0.
func span(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return age(words.Span(ms))
}

// recorder returns the Observer that records the events of a database. For the database named
// config, it returns nil, because this database belongs to a sharded cluster.
func recorder(log *history.Log, database string) distlock.Observer {
	if database == mongosDatabase {
		return nil
	}
	return log
}

// operator returns user@host of this process, which the history records with a break.
func operator() string {
	host := hostname()
	if person, err := user.Current(); err == nil {
		host = person.Username + "@" + host
	}
	return host
}

func hostname() string {
	host, _ := os.Hostname()
	return host
}
