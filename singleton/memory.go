package singleton

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/clock"
)

// A MemoryStore is a [Store] in memory, for tests and for programs with one process.
// [NewMemoryStore] returns a MemoryStore.
type MemoryStore struct {
	now func() time.Time

	mu   sync.Mutex                     // guards docs
	docs map[string]map[string]bson.Raw // by collection and _id
}

var _ Store = (*MemoryStore)(nil)

// NewMemoryStore returns an empty store. The parameter is a function that returns the server's
// time. If the parameter is nil, the store uses the clock of the machine.
func NewMemoryStore(now func() time.Time) *MemoryStore {
	if now == nil {
		system := clock.System()
		now = func() time.Time { return system.Now().Wall }
	}
	return &MemoryStore{now: now, docs: map[string]map[string]bson.Raw{
		SettingsCollection: {}, RecordsCollection: {},
	}}
}

// Put stores a document in [SettingsCollection] or [RecordsCollection]. It replaces a document with
// the same _id. The _id must be a string.
func (s *MemoryStore) Put(collection string, doc bson.D) error {
	raw, err := bson.Marshal(doc)
	if err != nil {
		return fmt.Errorf("singleton: put: %w", err)
	}
	name, ok := bson.Raw(raw).Lookup("_id").StringValueOK()
	if !ok {
		return bad("the document has no _id that is a string")
	}
	if s.docs[collection] == nil {
		return bad("there is no collection %q", collection)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs[collection][name] = raw
	return nil
}

// Settings implements [Store].
func (s *MemoryStore) Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]bson.Raw{}
	for _, name := range names {
		if raw := s.docs[SettingsCollection][name]; raw != nil {
			found[name] = slices.Clone(raw)
		}
	}
	return found, ctx.Err()
}

// Records implements [Store].
func (s *MemoryStore) Records(ctx context.Context) (raws []bson.Raw, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := s.docs[RecordsCollection]
	for _, name := range slices.Sorted(maps.Keys(records)) {
		raws = append(raws, slices.Clone(records[name]))
	}
	return raws, ctx.Err()
}

// Ask implements [Store].
func (s *MemoryStore) Ask(ctx context.Context, name string, rev int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := s.docs[RecordsCollection][name]
	if has, ok := number(raw.Lookup("rev")); !ok || has != rev {
		return fmt.Errorf("%w: %q does not have revision %d", ErrChanged, name, rev)
	}
	asks, _ := number(raw.Lookup("asks"))
	_, err := s.set(ctx, name, bson.D{e("asks", asks+1)})
	return err
}

// Change implements [Store].
func (s *MemoryStore) Change(ctx context.Context, c Change) (bson.Raw, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := s.docs[RecordsCollection][c.Name]
	if err := c.refused(raw); err != nil {
		return nil, err
	}
	rev, ok := number(raw.Lookup("rev"))
	if !ok && raw.Lookup("rev").Type != 0 {
		return nil, fmt.Errorf("cannot raise the field rev of %q, which is not a number", c.Name)
	}
	now := s.now()
	set := bson.D{e("_id", c.Name), e("fence", c.Fence), e("rev", rev+1), e("seen", now)}
	set = append(set, c.Set...)
	for _, field := range c.Dates {
		set = append(set, e(field, now))
	}
	return s.set(ctx, c.Name, set)
}

// set changes fields of a record and returns the record. The caller holds mu.
func (s *MemoryStore) set(ctx context.Context, name string, fields bson.D) (bson.Raw, error) {
	doc := map[string]any{}
	if raw := s.docs[RecordsCollection][name]; raw != nil {
		if err := bson.Unmarshal(raw, &doc); err != nil {
			return nil, err
		}
	}
	for _, field := range fields {
		doc[field.Key] = field.Value
	}
	raw, err := bson.Marshal(doc)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	s.docs[RecordsCollection][name] = raw
	return slices.Clone(raw), nil
}
