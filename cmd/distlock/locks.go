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
	"mongodlm/distlock"
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
	st, err := l.connection.open(0)
	if err != nil {
		return err
	}
	defer st.close()
	found, err := l.collect(ctx, st)
	if err != nil {
		return l.explain(err)
	}
	if l.json {
		return writeJSON(s.out, found)
	}
	found.print(s.out)
	return nil
}

// A listing is what the collections hold.
type listing struct {
	Locks     []row     `json:"locks"`
	Malformed []problem `json:"malformed"`
}

// A row is one lock. Its texts are as stored.
type row struct {
	Name    string     `json:"name"`
	Held    bool       `json:"held"`
	Process string     `json:"process"` // the last holder's when the lock is free
	Who     string     `json:"who"`
	Why     string     `json:"why"`
	Since   *time.Time `json:"since"` // server's clock; null when unknown
	// PingAgeMS is by the server's clock; null when unknown.
	PingAgeMS *int64   `json:"pingAgeMS"`
	Fence     int64    `json:"fence"`
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
	found := listing{Locks: []row{}, Malformed: []problem{}}
	pings := map[string]bool{} // malformed pings that were noted: one may serve many locks
	for h, err := range st.List(ctx) {
		var bad *catalog.MalformedError
		switch {
		case errors.As(err, &bad):
			found.Malformed = append(found.Malformed, problemOf(bad))
			continue
		case err != nil:
			return found, err
		case l.held && !h.Lock.Held:
			continue
		}
		if h.PingErr != nil && !pings[h.PingErr.ID] {
			pings[h.PingErr.ID] = true
			found.Malformed = append(found.Malformed, problemOf(h.PingErr))
		}
		found.Locks = append(found.Locks, rowOf(h))
	}
	return found, nil
}

func rowOf(h catalog.Holding) row {
	r := row{
		Name: h.Lock.Name, Held: h.Lock.Held, Process: h.Lock.Process, Who: h.Lock.Who,
		Why: h.Lock.Why, Fence: h.Lock.Fence, Marks: marks(h),
	}
	if !h.Lock.When.IsZero() {
		r.Since = &h.Lock.When
	}
	if d := pingAge(h); d >= 0 {
		ms := d.Milliseconds()
		r.PingAgeMS = &ms
	}
	return r
}

// pingAge is how old the holder's ping is by the server's clock; negative when unknown.
func pingAge(h catalog.Holding) time.Duration {
	if h.Ping == nil || h.ServerTime.IsZero() {
		return -1
	}
	return max(0, h.ServerTime.Sub(h.Ping.At))
}

// marks says what is peculiar about the holder; nothing for a lock that is free.
func marks(h catalog.Holding) []string {
	m := []string{}
	if !h.Lock.Held {
		return m
	}
	switch {
	case h.PingErr != nil:
		return append(m, "bad ping")
	case h.Ping == nil:
		return append(m, "no ping")
	}
	if !h.Ping.HasSeq {
		m = append(m, "foreign")
	}
	if h.Ping.Condemned != nil {
		m = append(m, "condemned")
	}
	takeover := max(h.Lock.Takeover, h.Ping.Takeover)
	if takeover == 0 {
		takeover = distlock.DefaultTakeover
	}
	if pingAge(h) > takeover {
		m = append(m, "silent")
	}
	return m
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
		fmt.Fprintln(t, "NAME\tHELD\tBY\tWHY\tSINCE\tPING AGE\tFENCE\tMARKS")
		for _, r := range l.Locks {
			fmt.Fprintln(t, strings.Join(r.columns(), "\t"))
		}
		_ = t.Flush() // a reader that has gone needs no table
	}
	if len(l.Malformed) == 0 {
		return
	}
	fmt.Fprint(w, "\nmalformed, never taken for free and never taken over:\n")
	for _, p := range l.Malformed {
		fmt.Fprintf(w, "  %s \"%s\": field %q %s\n    remedy: %s\n", p.Collection,
			shown(p.ID, 200), p.Field, shown(p.Problem, 400), p.Remedy)
	}
}

// columns are the cells of a row, fit for a terminal.
func (r row) columns() []string {
	since, ping := time.Time{}, time.Duration(-1)
	if r.Since != nil {
		since = *r.Since
	}
	if r.PingAgeMS != nil {
		ping = time.Duration(*r.PingAgeMS) * time.Millisecond
	}
	return []string{
		shown(r.Name, 60), yesNo(r.Held), shown(r.Process, 100), shown(r.Why, 60), instant(since),
		age(ping), fmt.Sprint(r.Fence), shown(strings.Join(r.Marks, ", "), 60),
	}
}
