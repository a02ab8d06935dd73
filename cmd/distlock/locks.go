package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"mongodlm/catalog"
)

// locks lists the locks. It only reads: it is no process of the lock subsystem and pings nothing.
type locks struct {
	connection
	held, json bool
}

func (l *locks) flags(f *flag.FlagSet) {
	l.connection.flags(f)
	f.BoolVar(&l.held, "held", false, "only locks that are held")
	f.BoolVar(&l.json, "json", false, "print the listing as JSON")
}

func (l *locks) accept(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	return l.connection.accept()
}

func (l *locks) run(ctx context.Context, s stdio) error {
	return show(ctx, s, &l.connection, l.json, l.collect)
}

// show reads a listing and prints it, for a person or as JSON.
func show[T interface{ print(io.Writer) }](ctx context.Context, s stdio, c *connection, asJSON bool,
	collect func(context.Context, *store) (T, error)) error {
	st, err := c.open(0)
	if err != nil {
		return err
	}
	defer st.close()
	found, err := collect(ctx, st)
	if err != nil {
		return c.explain(err)
	}
	if asJSON {
		return writeJSON(s.out, found)
	}
	found.print(s.out)
	return nil
}

// A listing is what the collections hold.
type listing struct {
	Locks     []row       `json:"locks"`
	Malformed problemList `json:"malformed"`
}

// A row is one holder of a lock, or the last one of a lock that is free. Its texts are as stored.
type row struct {
	Name    string     `json:"name"`
	Held    bool       `json:"held"`
	Mode    string     `json:"mode"`    // exclusive, shared or permit; empty when the lock is free
	Limit   int32      `json:"limit"`   // the permits there are; 0 but in mode permit
	Process string     `json:"process"` // the last holder's when the lock is free
	Who     string     `json:"who"`
	Why     string     `json:"why"`
	Since   *time.Time `json:"since"` // server's clock; null when unknown
	// PingAgeMS is by the server's clock; null when unknown.
	PingAgeMS *int64   `json:"pingAgeMS"`
	Fence     int64    `json:"fence"`
	Waiters   int      `json:"waiters"` // how many wait for the lock
	Marks     []string `json:"marks"`
}

// A problem is a document that cannot be understood.
type problem struct {
	Collection string `json:"collection"`
	ID         string `json:"id"`
	Field      string `json:"field"`
	Problem    string `json:"problem"`
	Remedy     string `json:"remedy"`
}

func (l *locks) collect(ctx context.Context, st *store) (listing, error) {
	found := listing{Locks: []row{}, Malformed: problemList{}}
	for h, err := range st.List(ctx) {
		var bad *catalog.MalformedError
		switch {
		case errors.As(err, &bad):
			found.Malformed.add(bad)
			continue
		case err != nil:
			return found, err
		case l.held && !h.Lock.Held:
			continue
		}
		for _, s := range holdersOf(h) {
			found.Malformed.add(s.pulse.Err)
			found.Locks = append(found.Locks, rowOf(h.Lock, s))
		}
	}
	return found, nil
}

func rowOf(l catalog.Lock, s standing) row {
	r := row{
		Name: l.Name, Held: l.Held, Process: s.Process, Who: s.Who, Why: s.Why,
		Since: moment(s.Since), PingAgeMS: milliseconds(s.pingAge()), Fence: s.Fence,
		Waiters: len(l.Waiters), Marks: s.marks(),
	}
	if l.Held {
		r.Mode, r.Limit = mode(s.Mode), s.Limit
	}
	return r
}

func problemOf(e *catalog.MalformedError) problem {
	return problem{e.Collection, e.ID, e.Field, e.Problem, remedy(e)}
}

// remedy says what an operator can do about a malformed document.
func remedy(e *catalog.MalformedError) string {
	switch {
	case e.Field == "_id":
		return "remove the document"
	case e.Collection == catalog.PingsCollection:
		return "stop the process, then remove its ping document"
	case strings.HasPrefix(e.Field, "waiters"):
		return "remove the field waiters; those who wait enter the line again"
	case strings.HasPrefix(e.Field, "sharers"):
		return "make sure that nobody works under this lock, then set state to the int 0 and remove " +
			"the field sharers"
	case e.Field == "fence":
		return "set it to a long that is larger than every fence handed out before"
	default:
		return "make sure that nobody works under this lock, then set state to the int 0"
	}
}

// print writes the listing for a person.
func (l listing) print(w io.Writer) {
	if len(l.Locks) == 0 {
		fmt.Fprintln(w, "no locks")
	} else {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tHELD\tMODE\tBY\tWHY\tSINCE\tPING AGE\tFENCE\tWAITING\tMARKS")
		for _, r := range l.Locks {
			fmt.Fprintln(t, strings.Join(r.columns(), "\t"))
		}
		_ = t.Flush() // a reader that has gone needs no table
	}
	l.Malformed.print(w)
}

// print writes what cannot be understood, below a table.
func (l problemList) print(w io.Writer) {
	if len(l) == 0 {
		return
	}
	fmt.Fprint(w, "\nmalformed, never taken for free and never taken over:\n")
	for _, p := range l {
		fmt.Fprintf(w, "  %s \"%s\": field %q %s\n    remedy: %s\n", p.Collection,
			shown(p.ID, 200), p.Field, shown(p.Problem, 400), p.Remedy)
	}
}

// columns are the cells of a row, fit for a terminal.
func (r row) columns() []string {
	since := time.Time{}
	if r.Since != nil {
		since = *r.Since
	}
	return []string{
		shown(r.Name, 60), yesNo(r.Held), modeOf(r.Mode, r.Limit), shown(r.Process, 100),
		shown(r.Why, 60), instant(since), age(duration(r.PingAgeMS)), fmt.Sprint(r.Fence),
		fmt.Sprint(r.Waiters), shown(strings.Join(r.Marks, ", "), 60),
	}
}
