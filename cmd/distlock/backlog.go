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
	"mongodlm/distlock"
)

// rowsOf names the rows of a queue.
type rowsOf struct {
	lister
	collection, field string // collection is empty for all queues
	home              string // the database of the rows; empty means the database of the locks
	due               string // the field with a row's due time; empty: as the queue records
}

func (v *rowsOf) flags(f *pflag.FlagSet) {
	v.lister.flags(f)
	f.StringVar(&v.field, "field", "claim",
		"the `name` of the field with the claim of a row of COLLECTION")
	f.StringVar(&v.due, "due", "", "the `name` of the field with the due time of a row "+
		"(Config.Due); by default the one that\nprocesses of the queue have recorded")
}

func (v *rowsOf) accept(c call) error {
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
	OddRows    int64  `json:"oddRows,omitempty"` // never claimable; counted only here
	// Odd are the reasons for at most twenty odd rows.
	Odd []string `json:"odd,omitempty"`
	// NoField is the name of the field if no row has that field: no row was ever claimed, or the
	// name is wrong.
	NoField string `json:"noField,omitempty"`
}

// there returns an error for a collection that does not exist and has no queue. It returns nil if
// the user may not list the collections. It accepts DATABASE.COLLECTION if a process works on that
// queue and no collection has that name.
func (v *rowsOf) there(ctx context.Context, st *store) error {
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
		of, is := strings.CutPrefix(l.Name, "claim:")
		of, _, whole := strings.Cut(of, ":")
		home, collection, _ := strings.Cut(of, ".")
		switch {
		case is && whole && of == v.collection: // in the form that a listing prints
			v.home, v.collection = home, collection
			return nil
		case is && home != v.database:
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

// manyRows is the maximum number of rows that hasField searches.
const manyRows = 10_000

// hasField reports whether a row has the field.
func (v *rowsOf) hasField(ctx context.Context, coll *mongo.Collection) (bool, error) {
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

func (v *rowsOf) count(ctx context.Context, st *store) (backlog, error) {
	if err := v.there(ctx, st); err != nil {
		return backlog{}, err
	}
	q := backlog{Database: cmp.Or(v.home, v.database), Collection: v.collection, Due: v.due}
	cfg := claim.Config{Field: v.field}
	for l, bad := range st.Locks(ctx) {
		if bad != nil && !errors.Is(bad, distlock.ErrMalformed) {
			return q, bad
		}
		if !strings.HasPrefix(l.Name, "claim:"+cmp.Or(v.home, v.database)+"."+v.collection+":") {
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
		q.Paused, _ = admin.Paused(ctx) // a user without the privilege still gets the counts
	}
	return q, err
}

func (v *rowsOf) rows(st *store) *mongo.Collection {
	return st.client.Database(cmp.Or(v.home, v.database)).Collection(v.collection)
}

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
