package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

type rowsOf struct {
	lister
	collection, field string // collection is empty for all queues
	rowDatabase       string // the database of the rows; empty means the database of the locks
	due               string // the field with a row's due time; empty means the recorded field
}

func (v *rowsOf) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.StringVar(&v.field, "field", "claim",
		"the `name` of the field with the claim of a row of COLLECTION")
	f.StringVar(&v.due, "due", "", "the `name` of the field with the due time of a row "+
		"(Config.Due); default: the field that\nthe processes of the queue have recorded")
}

func (v *rowsOf) accept(c call) error {
	if args := append(c.args, c.after...); len(args) > 0 {
		v.collection = args[0]
		switch {
		case len(args) > 1 || args[0] == "":
			return fmt.Errorf("give one collection, not %q", args)
		case strings.ContainsAny(args[0], "$\x00"):
			return fmt.Errorf("%s is not a valid name of a collection", named(args[0]))
		}
	}
	switch {
	case v.field == "" || strings.ContainsAny(v.field, ".$\x00"):
		return errors.New("--field must be the name of a field, without a dot")
	case strings.HasPrefix(v.due, "$") || strings.ContainsRune(v.due, 0):
		return errors.New("--due must be a field name, which may have dots, but no leading dollar sign")
	case c.given("field") && v.collection == "":
		return errors.New("--field needs a COLLECTION, which is missing")
	}
	return v.connection.accept(c)
}

// A backlog counts the rows of a collection by state.
type backlog struct {
	Database   string `json:"database"`
	Collection string `json:"collection"`
	Ready      int64  `json:"ready"`
	Later      int64  `json:"later"` // ready, but never due or not due yet; not in Ready
	Claimed    int64  `json:"claimed"`
	Retrying   int64  `json:"retrying"`
	Dead       int64  `json:"dead"`
	Done       int64  `json:"done"`
	Due        string `json:"due,omitempty"` // the field with the due time of a row
	Paused     bool   `json:"paused,omitempty"`
	OddRows    int64  `json:"oddRows,omitempty"` // rows that can never be claimed, in no other count
	// Odd describes at most twenty of the rows that OddRows counts.
	Odd []string `json:"odd,omitempty"`
	// NoField is the name of the claim field, if no row has that field. Then no row was ever claimed,
	// or the name is wrong. Otherwise NoField is empty.
	NoField string `json:"noField,omitempty"`
}

// checkCollection returns an error if the collection does not exist and no queue uses it. For a
// queue with a lock document, v.collection may also be DATABASE.COLLECTION. checkCollection splits
// such a name into v.rowDatabase and v.collection. If the user may not list collections, it returns
// nil.
func (v *rowsOf) checkCollection(ctx context.Context, st *store) error {
	found, err := st.client.Database(v.database).
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: v.collection}})
	if err != nil || len(found) > 0 {
		return nil //nolint:nilerr // a user who may not list the collections may still count rows
	}
	var queues []string
	for l, bad := range st.Locks(ctx) {
		if bad != nil && !errors.Is(bad, distlock.ErrMalformed) {
			return bad
		}
		database, collection, is := words.Queue(l.Name)
		switch {
		case !is:
		case database+"."+collection == v.collection: // the form in listings
			v.rowDatabase, v.collection = database, collection
			return nil
		case database != v.database:
		case collection == v.collection:
			return nil
		case !slices.Contains(queues, collection):
			queues = append(queues, collection)
		}
	}
	err = fmt.Errorf("there is no collection %s in database %q", named(v.collection), v.database)
	if len(queues) > 0 {
		err = fmt.Errorf("%w; queues here: %s", err, listed(queues))
	}
	return err
}

func (q backlog) name() string { return q.Database + "." + q.Collection }

func (q *backlog) set(n claim.Counts) {
	q.Ready, q.Later, q.Claimed = n.Ready, n.Later, n.Claimed
	q.Retrying, q.Dead, q.Done = n.Retrying, n.Dead, n.Done
}

// maxFieldRows is the maximum number of rows that hasField searches.
const maxFieldRows = 10_000

func (v *rowsOf) hasField(ctx context.Context, coll *mongo.Collection) (bool, error) {
	n, err := coll.Aggregate(ctx, bson.A{
		bson.D{{Key: "$limit", Value: maxFieldRows}},
		bson.D{{Key: "$match",
			Value: bson.D{{Key: v.field, Value: bson.D{{Key: "$exists", Value: true}}}}}},
		bson.D{{Key: "$limit", Value: 1}}})
	if err != nil {
		return false, err
	}
	has := n.Next(ctx)
	return has, errors.Join(n.Err(), n.Close(ctx))
}

func (v *rowsOf) count(ctx context.Context, st *store) (backlog, error) {
	if err := v.checkCollection(ctx, st); err != nil {
		return backlog{}, err
	}
	q := backlog{Database: cmp.Or(v.rowDatabase, v.database), Collection: v.collection, Due: v.due}
	cfg := claim.Config{Field: v.field}
	for l, bad := range st.Locks(ctx) {
		if bad != nil && !errors.Is(bad, distlock.ErrMalformed) {
			return q, bad
		}
		if strings.HasPrefix(l.Name, "claim:"+q.name()+":") {
			as := claim.ConfigOf(l.Why)
			q.Due, cfg.Key = cmp.Or(q.Due, as.Due), cmp.Or(cfg.Key, as.Key)
		}
	}
	cfg.Due = q.Due
	coll := v.rows(st)
	admin, err := claim.NewAdmin(coll, cfg)
	if err != nil {
		return q, err
	}
	n, err := admin.Count(ctx)
	q.set(n)
	q.OddRows = n.Odd
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
		q.Paused, _ = admin.Paused(ctx) // a user without the privilege still gets the counts
	}
	return q, err
}

func (v *rowsOf) rows(st *store) *mongo.Collection {
	return st.client.Database(cmp.Or(v.rowDatabase, v.database)).Collection(v.collection)
}

func (q backlog) print(w io.Writer, _ layout) {
	if q.NoField != "" {
		fmt.Fprintf(w, "%d rows of %s have no field %s: they are ready if their queue uses it\n",
			q.Ready, named(q.name()), named(q.NoField))
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
		later = fmt.Sprintf("%d later (by field %s), ", q.Later, named(q.Due))
	}
	fmt.Fprintf(w, "%d ready, %s%d claimed, %d retrying, %d dead, %d done in %s\n", q.Ready, later,
		q.Claimed, q.Retrying, q.Dead, q.Done, named(q.name()))
}

const maxQueues = 100

type queueList struct {
	Database string    `json:"database"`
	Queues   []backlog `json:"queues"`
	More     bool      `json:"more"` // more queues exist than were counted

	empty string // printed instead of an empty table
}

// queues counts the rows of each queue that has a lock document, for at most maxQueues queues.
func (v *claims) queues(ctx context.Context, st *store) (queueList, error) {
	l := queueList{Database: v.database, Queues: []backlog{}}
	due := map[string]string{} // due fields by queue name
	for lock, err := range st.Locks(ctx) {
		if err != nil && !errors.Is(err, distlock.ErrMalformed) {
			return l, err
		}
		if database, collection, is := words.Queue(lock.Name); is {
			q := backlog{Database: database, Collection: collection}
			if _, known := due[q.name()]; !known {
				l.Queues = append(l.Queues, q)
			}
			due[q.name()] = cmp.Or(due[q.name()], claim.ConfigOf(lock.Why).Due)
		}
	}
	l.More = len(l.Queues) > maxQueues
	l.Queues = l.Queues[:min(len(l.Queues), maxQueues)]
	for i := range l.Queues {
		q := &l.Queues[i]
		q.Due = due[q.name()]
		var n claim.Counts
		admin, err := claim.NewAdmin(st.client.Database(q.Database).Collection(q.Collection),
			claim.Config{Due: q.Due})
		if err == nil {
			n, err = admin.Count(ctx)
		}
		if err != nil {
			return l, fmt.Errorf("count the rows of %s: %w", named(q.name()), err)
		}
		q.set(n)
	}
	slices.SortStableFunc(l.Queues, func(a, b backlog) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Retrying, a.Retrying))
	})
	if len(l.Queues) == 0 {
		l.empty = st.emptyText(ctx, fmt.Sprintf("no worker of a queue ever acquired a lock in database "+
			"%q; name a COLLECTION to count its rows", l.Database))
	}
	return l, nil
}

func (l queueList) print(w io.Writer, how layout) {
	if l.empty != "" {
		fmt.Fprintln(w, l.empty)
		return
	}
	t := table{columns: []column{{title: "QUEUE", minWidth: 8}, {title: "READY"}, {title: "LATER",
		blank: "0"}, {title: "CLAIMED"}, {title: "RETRYING"}, {title: "DEAD"}, {title: "DONE"}}}
	for _, q := range l.Queues {
		t.rows = append(t.rows,
			[]string{how.label(q.name()), fmt.Sprint(q.Ready), fmt.Sprint(q.Later),
				fmt.Sprint(q.Claimed), fmt.Sprint(q.Retrying), fmt.Sprint(q.Dead), fmt.Sprint(q.Done)})
	}
	t.print(w, how)
	if l.More {
		fmt.Fprintf(w, "more queues exist; only the first %d are counted\n", maxQueues)
	}
}
