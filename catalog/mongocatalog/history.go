package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// historyBatch is how many entries one command writes.
const historyBatch = 1000

func onHistory(verb, actions string) operation {
	return on(catalog.HistoryCollection, actions, verb)
}

// latest is the order of a listing, and oldest that in which entries are deleted.
var (
	latest = bson.D{{Key: "at", Value: int32(-1)}, {Key: "_id", Value: int32(-1)}}
	oldest = bson.D{{Key: "at", Value: int32(1)}, {Key: "_id", Value: int32(1)}}
)

// PrepareHistory is documented in [catalog.History]. One command for each of two indexes. A server
// that deletes nothing by its age, as FerretDB, makes the first one all the same, or refuses it:
// PruneHistory does it there.
func (c *Catalog) PrepareHistory(ctx context.Context, keep time.Duration) ([]string, error) {
	s, err := c.known(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare the history: %w", err)
	}
	byAge := options.Index()
	if s.Kind != catalog.FerretDB {
		byAge.SetExpireAfterSeconds(int32(keep / time.Second))
	}
	at := bson.E{Key: "at", Value: int32(1)}
	byName := append(bson.D{{Key: "name", Value: int32(1)}}, oldest...)
	err = c.historyIndex(ctx, mongo.IndexModel{Keys: bson.D{at}, Options: byAge})
	var warnings []string
	if hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict) {
		warnings = append(warnings, fmt.Sprintf("index \"at_1\" on %s.%s deletes entries at another "+
			"age than %v, or at none, and stays; drop it, and the right one is made at the next start",
			c.database, catalog.HistoryCollection, keep))
		err = nil
	}
	return warnings, errors.Join(err, c.historyIndex(ctx, mongo.IndexModel{Keys: byName}))
}

func (c *Catalog) historyIndex(ctx context.Context, model mongo.IndexModel) error {
	o := onHistory("create an index of the history", "createIndex")
	return c.run(ctx, o, func(ctx context.Context) error {
		_, err := c.history.Indexes().CreateOne(ctx, model)
		return err
	})
}

// AppendHistory is documented in [catalog.History].
func (c *Catalog) AppendHistory(ctx context.Context, entries []catalog.HistoryEntry) error {
	for batch := range slices.Chunk(entries, historyBatch) {
		if err := c.insertHistory(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (c *Catalog) insertHistory(ctx context.Context, entries []catalog.HistoryEntry) error {
	o := onHistory("write history", "insert")
	o.writes = true
	docs := make([]bson.D, len(entries))
	for i, e := range entries {
		docs[i] = e.Document()
	}
	told := true
	err := c.run(ctx, o, func(ctx context.Context) error {
		_, err := c.history.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
		var refused mongo.BulkWriteException
		other := func(e mongo.BulkWriteError) bool { return e.Code != codeDuplicateKey }
		switch told = errors.As(err, &refused); {
		case told && refused.WriteConcernError != nil: // even what was not refused may be undone
			return mongo.WriteException{WriteConcernError: refused.WriteConcernError}
		case told && !slices.ContainsFunc(refused.WriteErrors, other):
			return nil // what was refused was written before
		}
		return err
	})
	var denied *catalog.PrivilegeError
	if err == nil || told || errors.As(err, &denied) || errors.Is(err, catalog.ErrUnknownOutcome) {
		return err
	}
	// The driver may have sent it before, and tells the last failure only.
	return fmt.Errorf("%w: %w", catalog.ErrUnknownOutcome, err)
}

// PruneHistory is documented in [catalog.History]. Two reads, and a delete where there is something
// to delete. The count is the one that the server keeps, which may be wrong after a crash of it.
// What is no entry of ours, for want of a Date, stays.
func (c *Catalog) PruneHistory(ctx context.Context, before time.Time, most int) (int, error) {
	there, err := c.countHistory(ctx)
	if err != nil {
		return 0, err
	}
	o := onHistory("find the oldest of the history", "find")
	var first bson.Raw // of those that stay because of the number
	dated := append(since(time.UnixMilli(0)),
		bson.E{Key: "at.0", Value: bson.D{{Key: "$exists", Value: false}}}) // no array of dates
	err = c.find(ctx, o, c.history, dated, options.Find().SetSort(oldest).
		SetSkip(max(0, there-int64(most))).SetLimit(1).SetProjection(only("at")),
		func(raw bson.Raw) { first = slices.Clone(raw) })
	if err != nil || first == nil {
		return 0, err
	}
	at, id := first.Lookup("at"), first.Lookup("_id")
	ms, ok := at.DateTimeOK()
	if !ok || there <= int64(most) && !time.UnixMilli(ms).Before(before) {
		return 0, nil
	}
	o = onHistory("prune the history", "remove")
	reply, err := c.write(ctx, o, deletion(o.collection, removing(bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "at", Value: bson.D{{Key: "$lt", Value: before}}}},
		bson.D{{Key: "at", Value: bson.D{{Key: "$lt", Value: at}}}},
		bson.D{{Key: "at", Value: at}, {Key: "_id", Value: bson.D{{Key: "$lt", Value: id}}}},
	}}}, 0)))
	if err != nil {
		return 0, err
	}
	return matched(reply), nil
}

// since is the filter for what did not happen before t.
func since(t time.Time) bson.D {
	return bson.D{{Key: "at", Value: bson.D{{Key: "$gte", Value: t}}}}
}

func (c *Catalog) countHistory(ctx context.Context) (n int64, err error) {
	err = c.run(ctx, onHistory("count the history", "find"), func(ctx context.Context) (err error) {
		n, err = c.history.EstimatedDocumentCount(ctx)
		return err
	})
	return n, err
}

// ReadHistory is documented in [catalog.History]. One find.
func (c *Catalog) ReadHistory(ctx context.Context, q catalog.HistoryQuery) catalog.HistorySeq {
	filter := bson.D{}
	if q.Name != "" {
		filter = append(filter, bson.E{Key: "name", Value: q.Name})
	}
	if !q.Since.IsZero() {
		filter = append(filter, since(q.Since)...)
	}
	how := options.Find().SetSort(latest)
	if q.Limit > 0 {
		how.SetLimit(int64(q.Limit))
	}
	return func(yield func(catalog.HistoryEntry, error) bool) {
		o := onHistory("read the history", "find")
		r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
			return c.history.Find(ctx, filter, how)
		})
		defer r.close(ctx)
		for r.next(ctx) {
			e, bad := catalog.ParseHistory(r.row())
			var err error
			if bad != nil {
				err = o.wrap(bad)
			}
			if !yield(e, err) {
				return
			}
		}
		if r.err != nil {
			yield(catalog.HistoryEntry{}, r.err)
		}
	}
}
