package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/singleton"
)

// jobs lists what packages singleton and claim have in the database. Like locks it only reads.
type jobs struct {
	connection
	collection, field string // of rows to claim; collection is empty for loops and schedules
	json, wide        bool
}

func (v *jobs) flags(f *pflag.FlagSet) {
	v.connection.flags(f)
	f.StringVar(&v.field, "field", "claim",
		"the `name` of the field that says whose a row of COLLECTION is")
	f.BoolVar(&v.json, "json", false, "print it as JSON")
	f.BoolVar(&v.wide, "wide", false, wideText)
}

func (v *jobs) accept(c call) error {
	if args := append(c.args, c.after...); len(args) > 0 {
		v.collection = args[0]
		switch {
		case len(args) > 1 || args[0] == "":
			return fmt.Errorf("give one collection, not %q", args)
		case strings.ContainsAny(args[0], "$\x00"):
			return fmt.Errorf("%s is no name of a collection", named(args[0]))
		}
	}
	switch {
	case v.field == "" || strings.ContainsAny(v.field, ".$\x00"):
		return errors.New("--field must be the name of a field, without a dot")
	case c.given("field") && v.collection == "":
		return errors.New("--field is that of a COLLECTION, which is missing")
	}
	return v.connection.accept(c)
}

func (v *jobs) run(ctx context.Context, s stdio) error {
	if v.collection != "" {
		return show(ctx, s, &v.connection, v.json, v.wide, v.count)
	}
	return show(ctx, s, &v.connection, v.json, v.wide, v.collect)
}

// A rota is what runs on one process of many.
type rota struct {
	Database string    `json:"database"`
	Loops    []loopRow `json:"loops"`
}

// A loopRow is one loop or schedule. Its texts are as stored, its times are by the server's clock
// and null when there is none.
type loopRow struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`  // loop or slots
	State     string     `json:"state"` // of the latest round
	Stopped   string     `json:"stopped"`
	Process   string     `json:"process"`
	Begun     *time.Time `json:"begun"`
	Next      *time.Time `json:"next"`
	Slot      *time.Time `json:"slot"`
	Rounds    int64      `json:"rounds"`
	Failures  int64      `json:"failures"`
	Missed    int64      `json:"missed"`
	LastError string     `json:"lastError"`
	Malformed string     `json:"malformed"` // what is wrong with its documents
}

func (v *jobs) collect(ctx context.Context, st *store) (rota, error) {
	found := rota{Database: v.database, Loops: []loopRow{}}
	records, err := singleton.NewStore(st.client.Database(v.database))
	if err != nil {
		return found, err
	}
	all, err := singleton.List(ctx, records)
	if err != nil {
		return found, err
	}
	for _, s := range all {
		r := loopRow{
			Name: s.Name, Kind: string(s.Kind), State: string(s.State), Process: s.Process,
			Begun: moment(s.Begun), Next: moment(s.Next), Slot: moment(s.Slot),
			Rounds: s.Rounds, Failures: s.Failures, Missed: s.Missed, LastError: s.LastError,
		}
		switch {
		case s.Settings.Stopped:
			r.Stopped = "stopped"
		case s.Settings.Window != nil:
			r.Stopped = fmt.Sprintf("outside %v", *s.Settings.Window)
		}
		for _, bad := range []error{s.Err, s.SettingsErr} {
			if bad != nil {
				r.Malformed = strings.TrimPrefix(r.Malformed+"; "+bad.Error(), "; ")
			}
		}
		found.Loops = append(found.Loops, r)
	}
	return found, nil
}

// print writes the listing for a person.
func (q rota) print(w io.Writer, how layout) {
	if len(q.Loops) == 0 {
		fmt.Fprintf(w, "no loop or schedule ever ran in database %q\n", q.Database)
		return
	}
	t := table{columns: []column{
		{title: "NAME", least: 8}, {title: "KIND"}, {title: "LAST"}, {title: "BEGUN"}, {title: "NEXT"},
		{title: "PAUSE", idle: "-"}, {title: "FAILED", idle: "0"}, {title: "MISSED", idle: "0"},
		{title: "PROCESS", least: 8}, {title: "ERROR", idle: "-", least: 6}, {title: "ROUNDS", wide: true},
	}}
	at := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.UTC().Format(time.RFC3339)
	}
	for _, r := range q.Loops {
		t.rows = append(t.rows, []string{
			label(r.Name), shown(r.Kind, 20), shown(r.State, 20), at(r.Begun), at(r.Next), shown(r.Stopped, 40),
			fmt.Sprint(r.Failures), fmt.Sprint(r.Missed), how.process(r.Process), shown(r.LastError, 80),
			fmt.Sprint(r.Rounds),
		})
	}
	t.print(w, how)
	for _, r := range q.Loops {
		if r.Malformed != "" {
			fmt.Fprintf(w, "%s: %s\n", label(orElse(r.Name, "-")), catalog.Printable(r.Malformed, 400))
		}
	}
}

// A backlog is the rows of a collection by state.
type backlog struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Ready      int64  `json:"ready"`
	Claimed    int64  `json:"claimed"`
	Retrying   int64  `json:"retrying"`
	Dead       int64  `json:"dead"`
	Done       int64  `json:"done"`
	Refused    string `json:"refused,omitempty"` // what the processes say that the server refuses to change
}

func (v *jobs) count(ctx context.Context, st *store) (backlog, error) {
	rows := st.client.Database(v.database).Collection(v.collection)
	n, err := claim.Count(ctx, rows, claim.Config{Field: v.field})
	q := backlog{v.database, v.collection, n.Ready, n.Claimed, n.Retrying, n.Dead, n.Done, ""}
	for l, bad := range st.Locks(ctx) {
		if bad != nil {
			return q, errors.Join(err, bad)
		}
		of, is := strings.CutSuffix(l.Name, ":refused")
		if is && l.Held && strings.HasPrefix(of, "claim:"+v.database+"."+v.collection+":") {
			q.Refused = l.Why
		}
	}
	return q, err
}

// print writes the counts for a person.
func (q backlog) print(w io.Writer, _ layout) {
	fmt.Fprintf(w, "%d ready, %d claimed, %d retrying, %d dead, %d done in %s\n", q.Ready, q.Claimed,
		q.Retrying, q.Dead, q.Done, named(q.Database+"."+q.Collection))
	if q.Refused != "" {
		fmt.Fprintln(w, catalog.Printable(q.Refused, 400))
	}
}
