package claim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// A Queue claims rows for one process. It is safe for concurrent use.
type Queue[T any] struct {
	e     *engine
	admin *Admin
}

// New checks cfg, creates the missing indexes, and returns the queue. Close it before the Manager,
// whose database may be on another server. Errors: a *ConfigError if cfg is wrong or the server
// supports no chains; an error that matches ErrConfig if the server refuses Filter; a
// *distlock.PrivilegeError, with the command for an index that the user may not create.
func New[T any](ctx context.Context, m *distlock.Manager, coll *mongo.Collection,
	cfg Config) (*Queue[T], error) {
	var list problems
	list.add(ctx == nil, noContext)
	list.add(m == nil, "the Manager is nil")
	row := reflect.TypeFor[T]()
	list.add(!slices.Contains([]reflect.Kind{reflect.Struct, reflect.Map, reflect.Slice,
		reflect.Interface}, row.Kind()), "rows are %v, must be structs, maps or documents", row)
	admin, err := newAdmin(coll, cfg, list)
	if err != nil {
		return nil, err
	}
	preparing, done := context.WithTimeout(ctx, patience*m.Config().CommandTimeout)
	defer done()
	if err := admin.store.Prepare(preparing); err != nil {
		if errors.Is(err, rows.ErrNoChains) {
			return nil, &ConfigError{Problems: []string{err.Error()}}
		}
		return nil, fmt.Errorf("claim: %w", err)
	}
	if _, err := admin.store.First(preparing, rows.Ask{}); err != nil {
		if refused := badQuery(err); errors.Is(refused, ErrConfig) {
			return nil, refused
		}
		return nil, fmt.Errorf("claim: %w", err)
	}
	return &Queue[T]{newEngine(ctx, m, admin.store, admin.namespace, admin.cfg), admin}, nil
}

// Admin returns the Admin that lists and changes the queue's rows.
func (q *Queue[T]) Admin() *Admin { return q.admin }

// Run claims rows and calls the given handler for each row, up to Workers rows at a time, until ctx
// ends. The contexts of the handlers end with ctx. Run then waits for the handlers, records their
// results, and returns nil. It returns an error if a privilege is missing, the Manager is closed,
// the server refuses the query, or another call of Run or Serve runs.
func (q *Queue[T]) Run(ctx context.Context,
	handle func(ctx context.Context, row *Row[T]) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	r, err := q.begin(handle)
	if err != nil {
		return err
	}
	return r.wait(ctx, ctx)
}

func (q *Queue[T]) begin(handle func(ctx context.Context, row *Row[T]) error) (*run, error) {
	if handle == nil {
		return nil, &ConfigError{Problems: []string{"the handler is nil"}}
	}
	return q.e.begin(func(ctx context.Context, c *claimed) error {
		row := &Row[T]{e: q.e, c: c}
		if err := bson.Unmarshal(c.row.Doc, &row.Doc); err != nil {
			return fmt.Errorf("decode the document: %w", err)
		}
		return handle(ctx, row)
	})
}

// Add inserts documents and wakes a worker of this process. With the context of a transaction of
// [Row.DoneWith], the insert is part of the transaction. If a document has a list in the field
// Config.Key, Add returns an error.
func (q *Queue[T]) Add(ctx context.Context, docs ...T) error {
	if err := usable(ctx); err != nil || len(docs) == 0 {
		return err
	}
	list := make([]any, len(docs))
	for i, doc := range docs {
		list[i] = doc
	}
	if err := q.e.oneKey(list...); err != nil {
		return fmt.Errorf("claim: add rows: %w", err)
	}
	if err := q.e.store.Insert(ctx, list); err != nil {
		return err
	}
	signal(q.e.woken)
	return nil
}

// mostKey is the maximum size of a key of Insert, in bytes. Old servers limit the size of an index
// entry.
const mostKey = 900

// Insert adds a document unless the collection has one with the given key, and reports whether it
// did. A key has 1 to 900 bytes, and stays in use until its document is removed. Insert joins a
// transaction as Add does. It creates a unique index, which some sharded collections cannot have.
// After an error, call Insert again.
func (q *Queue[T]) Insert(ctx context.Context, key string, doc T) (inserted bool, err error) {
	if err := usable(ctx); err != nil {
		return false, err
	}
	if key == "" || len(key) > mostKey || !utf8.ValidString(key) {
		return false, fmt.Errorf("claim: insert a row: the key must be UTF-8 of 1 to %d bytes", mostKey)
	}
	if err = q.e.oneKey(doc); err == nil {
		inserted, err = q.e.store.InsertUnique(ctx, key, doc)
	}
	if err != nil {
		return false, fmt.Errorf("claim: insert a row with the key %q: %w", key, err)
	}
	if inserted {
		signal(q.e.woken)
	}
	return inserted, nil
}

// oneKey returns an error if a document has a list as its key. The document would be in several
// chains, and could never be claimed.
func (e *engine) oneKey(docs ...any) error {
	if e.cfg.Key == "" {
		return nil
	}
	for i, doc := range docs {
		raw, err := bson.Marshal(doc)
		if err != nil { // the driver reports it
			continue
		}
		if field := rows.ListIn(raw, e.cfg.Key); field != "" {
			return fmt.Errorf("document %d of %d has a list in the field %q, and Config.Key is %q: "+
				"a row is in one chain, give it one value there", i+1, len(docs), field, e.cfg.Key)
		}
	}
	return nil
}

// Counts counts the rows in each state. It sends at most nine commands.
func (q *Queue[T]) Counts(ctx context.Context) (Counts, error) {
	counts, err := q.admin.Count(ctx)
	counts.Refused = q.e.refused()
	return counts, err
}
