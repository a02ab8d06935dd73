package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

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

	key string // the field with the key of a row's chain
}

// checkCollection returns an error if the collection does not exist and no queue uses it. For a
// queue with a lock document, v.collection may also be DATABASE.COLLECTION. checkCollection splits
// such a name, and sets v.rowDatabase. If the user may not list collections, it returns nil.
func (v *claims) checkCollection(ctx context.Context, st *store) error {
	v.rowDatabase = v.database
	found, err := st.client.Database(v.database).
		ListCollectionNames(ctx, bson.D{{Key: "name", Value: v.collection}})
	if err != nil || len(found) > 0 {
		return nil //nolint:nilerr // a user who may not list the collections may still count rows
	}
	known, err := st.queues(ctx)
	if err != nil {
		return err
	}
	var here []string
	for _, q := range known {
		switch {
		case q.name() == v.collection: // the form in listings
			v.rowDatabase, v.collection = q.Database, q.Collection
			return nil
		case q.Database != v.database:
		case q.Collection == v.collection:
			return nil
		default:
			here = append(here, q.Collection)
		}
	}
	err = fmt.Errorf("there is no collection %s in database %q", named(v.collection), v.database)
	if len(here) > 0 {
		err = fmt.Errorf("%w; queues here: %s", err, listed(here))
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

func (v *claims) hasField(ctx context.Context, coll *mongo.Collection) (bool, error) {
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

func (v *claims) count(ctx context.Context, st *store) (backlog, error) {
	if err := v.checkCollection(ctx, st); err != nil {
		return backlog{}, err
	}
	q := backlog{Database: v.rowDatabase, Collection: v.collection, Due: v.due}
	err := each(st.Locks(ctx), new(problemList), func(lock distlock.LockInfo) {
		if words.BelongsTo(lock.Name, q.name()) {
			q.record(lock)
		}
	})
	if err != nil {
		return q, err
	}
	coll := v.rows(st)
	admin, err := claim.NewAdmin(coll, claim.Config{Field: v.field, Due: q.Due, Key: q.key})
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

func (v *claims) rows(st *store) *mongo.Collection {
	return st.client.Database(v.rowDatabase).Collection(v.collection)
}

func (q backlog) print(w io.Writer, _ layout) {
	later := ""
	if q.Due != "" {
		later = fmt.Sprintf("%d later (by field %s), ", q.Later, named(q.Due))
	}
	if q.NoField != "" {
		fmt.Fprintf(w, "%d rows of %s have no field %s: they are ready if their queue uses it\n",
			q.Ready, named(q.name()), named(q.NoField))
	} else {
		fmt.Fprintf(w, "%d ready, %s%d claimed, %d retrying, %d dead, %d done in %s\n", q.Ready, later,
			q.Claimed, q.Retrying, q.Dead, q.Done, named(q.name()))
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

const maxQueues = 100

type queueList struct {
	Database string    `json:"database"`
	Queues   []backlog `json:"queues"`
	More     bool      `json:"more"` // more queues exist than were counted

	empty string // printed instead of an empty table
}

// queues returns the queues that have a lock document, with the fields that their workers recorded.
func (s *store) queues(ctx context.Context) ([]backlog, error) {
	var all []backlog
	err := each(s.Locks(ctx), new(problemList), func(lock distlock.LockInfo) {
		database, collection, is := words.Queue(lock.Name)
		if !is {
			return
		}
		one := backlog{Database: database, Collection: collection}
		if len(all) == 0 || all[len(all)-1].name() != one.name() { // the locks are sorted by name
			all = append(all, one)
		}
		all[len(all)-1].record(lock)
	})
	return all, err
}

// record sets the fields Due and Key from the reason of a worker's lock, if they are not set.
func (b *backlog) record(lock distlock.LockInfo) {
	as := claim.ConfigOf(lock.Why)
	b.Due, b.key = cmp.Or(b.Due, as.Due), cmp.Or(b.key, as.Key)
}

// countQueues counts the rows of at most maxQueues queues.
func (v *claims) countQueues(ctx context.Context, st *store) (queueList, error) {
	l := queueList{Database: v.database, Queues: []backlog{}}
	known, err := st.queues(ctx)
	if err != nil {
		return l, err
	}
	l.More = len(known) > maxQueues
	l.Queues = append(l.Queues, known[:min(len(known), maxQueues)]...)
	for i := range l.Queues {
		q := &l.Queues[i]
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
