package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/singleton"
)

// jobs is what loops and claims have in common, and the name that both had before.
type jobs struct {
	lister
	collection, field string // of rows to claim; collection is empty for loops and schedules
	due               string // the field that says when a row is due; empty: as the queue itself says
}

func (v *jobs) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.StringVar(&v.field, "field", "claim",
		"the `name` of the field that says whose a row of COLLECTION is")
	f.StringVar(&v.due, "due", "", "the `name` of the field that says when a row is due "+
		"(Config.Due); by default the one that\nprocesses of the queue have told")
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
	case strings.HasPrefix(v.due, "$") || strings.ContainsRune(v.due, 0):
		return errors.New("--due must be the name of a field, dotted at most, without a dollar")
	case c.given("field") && v.collection == "":
		return errors.New("--field is that of a COLLECTION, which is missing")
	}
	return v.connection.accept(c)
}

func (v *jobs) run(ctx context.Context, s stdio) error {
	name := "loops"
	if v.collection != "" {
		name = "claims COLLECTION"
	}
	fmt.Fprintf(s.errOut, "distlock jobs: it is the old name of distlock %s, and goes with the "+
		"next version\n", name)
	return v.tell(ctx, s)
}

func (v *jobs) tell(ctx context.Context, s stdio) error {
	if v.collection != "" {
		return show(ctx, s, &v.lister, v.count)
	}
	return show(ctx, s, &v.lister, v.collect)
}

// A rota is what runs on one process of many.
type rota struct {
	Database string    `json:"database"`
	Loops    []loopRow `json:"loops"`

	void string // said instead of an empty table
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
	if len(all) == 0 {
		found.void = st.nothing(ctx,
			fmt.Sprintf("no loop or schedule ever ran in database %q", v.database))
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
		fmt.Fprintln(w, q.void)
		return
	}
	t := table{columns: []column{
		{title: "NAME", least: 8}, {title: "KIND"}, {title: "LAST"}, {title: "BEGUN"}, {title: "NEXT"},
		{title: "PAUSE", idle: "-"}, {title: "FAILED", idle: "0"}, {title: "MISSED", idle: "0"},
		{title: "PROCESS", least: 8}, {title: "ERROR", wide: true}, {title: "ROUNDS", wide: true},
	}}
	for _, r := range q.Loops {
		t.rows = append(t.rows, []string{
			how.label(r.Name), shown(r.Kind, 20), shown(r.State, 20), stamp(r.Begun), stamp(r.Next),
			shown(r.Stopped, 40), fmt.Sprint(r.Failures), fmt.Sprint(r.Missed),
			how.process(r.Process), how.text(r.LastError, longText),
			fmt.Sprint(r.Rounds),
		})
	}
	t.print(w, how)
	for _, r := range q.Loops {
		if r.LastError != "" && !how.whole {
			wrap(w, how, how.label(r.Name)+": "+shown(r.LastError, longText), "  ")
		}
		if r.Malformed != "" {
			wrap(w, how, label(cmp.Or(r.Name, "-"))+": "+catalog.Printable(r.Malformed, 400), "  ")
		}
	}
}

// A backlog is the rows of a collection by state.
type backlog struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Ready      int64  `json:"ready"`
	Later      int64  `json:"later"` // ready, and not due yet or never; Ready leaves them out
	Claimed    int64  `json:"claimed"`
	Retrying   int64  `json:"retrying"`
	Dead       int64  `json:"dead"`
	Done       int64  `json:"done"`
	Due        string `json:"due,omitempty"` // the field with the due time of a row
	Paused     bool   `json:"paused,omitempty"`
	OddRows    int64  `json:"oddRows,omitempty"` // they can never be claimed; no other number has them
	// Odd are the reasons, for twenty rows at most.
	Odd []string `json:"odd,omitempty"`
	// NoField is the name of the field where no row has it: none was ever claimed, or the name is
	// wrong.
	NoField string `json:"noField,omitempty"`
}

// there refuses a collection that does not exist and that no process ever worked on, as far as the
// user may know.
func (v *jobs) there(ctx context.Context, st *store) error {
	found, err := st.client.Database(v.database).
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: v.collection}})
	if err != nil || len(found) > 0 {
		return nil //nolint:nilerr // who may not list collections may count their rows
	}
	var queues []string
	for l, bad := range st.Locks(ctx) {
		if bad != nil && !errors.Is(bad, distlock.ErrMalformed) {
			return bad
		}
		of, is := strings.CutPrefix(l.Name, "claim:"+v.database+".")
		collection, _, whole := strings.Cut(of, ":")
		switch {
		case is && whole && collection == v.collection:
			return nil
		case is && whole && !slices.Contains(queues, collection):
			queues = append(queues, collection)
		}
	}
	err = fmt.Errorf("there is no collection %s in database %q", named(v.collection), v.database)
	if len(queues) > 0 {
		err = fmt.Errorf("%w; queues here: %s", err, listed(queues))
	}
	return err
}

// manyRows bounds in how many rows a field is looked for.
const manyRows = 10_000

// hasField reports whether one of the rows has the field.
func (v *jobs) hasField(ctx context.Context, coll *mongo.Collection) (bool, error) {
	n, err := coll.Aggregate(ctx, bson.A{
		bson.D{{Key: "$limit", Value: manyRows}},
		bson.D{{Key: "$match",
			Value: bson.D{{Key: v.field, Value: bson.D{{Key: "$exists", Value: true}}}}}},
		bson.D{{Key: "$limit", Value: 1}}})
	if err != nil {
		return false, err
	}
	has := n.Next(ctx)
	return has, errors.Join(n.Err(), n.Close(ctx))
}

func (v *jobs) count(ctx context.Context, st *store) (backlog, error) {
	if err := v.there(ctx, st); err != nil {
		return backlog{}, err
	}
	q := backlog{Database: v.database, Collection: v.collection, Due: v.due}
	cfg := claim.Config{Field: v.field}
	for l, bad := range st.Locks(ctx) {
		if bad != nil && !errors.Is(bad, distlock.ErrMalformed) {
			return q, bad
		}
		if !strings.HasPrefix(l.Name, "claim:"+v.database+"."+v.collection+":") {
			continue
		}
		as := claim.ConfigOf(l.Why)
		q.Due, cfg.Key = cmp.Or(q.Due, as.Due), cmp.Or(cfg.Key, as.Key)
	}
	cfg.Due = q.Due
	coll := v.rows(st)
	admin, err := claim.NewAdmin(coll, cfg)
	if err != nil {
		return q, err
	}
	n, err := admin.Count(ctx)
	q.OddRows, q.Ready, q.Later, q.Claimed, q.Retrying, q.Dead, q.Done = n.Odd, n.Ready, n.Later, n.Claimed,
		n.Retrying, n.Dead, n.Done
	if err == nil && q.Ready > 0 && q.Claimed+q.Retrying+q.Dead+q.Done == 0 {
		has, bad := v.hasField(ctx, coll)
		if err = bad; bad == nil && !has {
			q.NoField = v.field
		}
	}
	if err == nil {
		q.Odd, err = admin.Odd(ctx)
	}
	if err == nil {
		q.Paused, _ = admin.Paused(ctx) // a user without the privilege sees the counts
	}
	return q, err
}

func (v *jobs) rows(st *store) *mongo.Collection {
	return st.client.Database(v.database).Collection(v.collection)
}

// print writes the counts for a person.
func (q backlog) print(w io.Writer, _ layout) {
	if q.NoField != "" {
		fmt.Fprintf(w, "%d rows of %s have no field %s: ready, if that is the field of their queue\n",
			q.Ready, named(q.Database+"."+q.Collection), named(q.NoField))
	} else {
		q.printCounts(w)
	}
	if q.Paused {
		fmt.Fprintln(w, "the queue \"queue\" is paused")
	}
	if q.OddRows > 0 {
		fmt.Fprintf(w, "%d rows can never be claimed\n", q.OddRows)
	}
	for _, one := range q.Odd {
		fmt.Fprintln(w, catalog.Printable(one, 400))
	}
}

func (q backlog) printCounts(w io.Writer) {
	later := ""
	if q.Due != "" {
		later = fmt.Sprintf("%d later by %s, ", q.Later, named(q.Due))
	}
	fmt.Fprintf(w, "%d ready, %s%d claimed, %d retrying, %d dead, %d done in %s\n", q.Ready, later,
		q.Claimed, q.Retrying, q.Dead, q.Done, named(q.Database+"."+q.Collection))
}
