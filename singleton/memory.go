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

	mu       sync.Mutex // guards the maps
	settings map[string]bson.Raw
	records  map[string]bson.D
}

var _ Store = (*MemoryStore)(nil)

// NewMemoryStore returns an empty store. The parameter is a function that returns the server's
// time. If the parameter is nil, the store uses the clock of the machine.
func NewMemoryStore(now func() time.Time) *MemoryStore {
	if now == nil {
		system := clock.System()
		now = func() time.Time { return system.Now().Wall }
	}
	return &MemoryStore{now: now, settings: map[string]bson.Raw{}, records: map[string]bson.D{}}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	switch collection {
	case SettingsCollection:
		s.settings[name] = raw
	case RecordsCollection:
		s.records[name] = slices.Clone(doc)
	default:
		return bad("there is no collection %q", collection)
	}
	return nil
}

// Settings implements [Store].
func (s *MemoryStore) Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]bson.Raw{}
	for _, name := range names {
		if raw, ok := s.settings[name]; ok {
			found[name] = slices.Clone(raw)
		}
	}
	return found, nil
}

// Records implements [Store].
func (s *MemoryStore) Records(ctx context.Context) (raws []bson.Raw, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		raw, err := bson.Marshal(s.records[name])
		if err != nil {
			return nil, err
		}
		raws = append(raws, raw)
	}
	return raws, nil
}

// Ask implements [Store].
func (s *MemoryStore) Ask(ctx context.Context, name string, rev int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, there := s.records[name]
	if !there {
		doc = bson.D{}
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		return err
	}
	if has, _ := number(bson.Raw(raw).Lookup("rev")); !there || has != rev {
		return fmt.Errorf("%w: %q has not revision %d", ErrChanged, name, rev)
	}
	asks, _ := number(bson.Raw(raw).Lookup("asks"))
	doc = slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool { return e.Key == "asks" })
	s.records[name] = append(doc, e("asks", asks+1))
	return nil
}

// Change implements [Store].
func (s *MemoryStore) Change(ctx context.Context, c Change) (bson.Raw, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	doc, there := s.records[c.Name]
	var raw bson.Raw
	if there {
		var err error
		if raw, err = bson.Marshal(doc); err != nil {
			return nil, err
		}
	}
	if err := c.refused(raw); err != nil {
		return nil, err
	}
	rev, ok := number(raw.Lookup("rev"))
	if !ok && raw.Lookup("rev").Type != 0 {
		return nil, fmt.Errorf("cannot raise the field rev of %q, which is not a number", c.Name)
	}
	doc = slices.Clone(doc)
	set := func(field string, value any) {
		for i, e := range doc {
			if e.Key == field {
				doc[i].Value = value
				return
			}
		}
		doc = append(doc, e(field, value))
	}
	now := bson.NewDateTimeFromTime(s.now())
	set("_id", c.Name)
	set("fence", c.Fence)
	for _, e := range c.Set {
		set(e.Key, e.Value)
	}
	for _, field := range append([]string{"seen"}, c.Dates...) {
		set(field, now)
	}
	set("rev", rev+1)
	raw, err := bson.Marshal(doc)
	if err == nil {
		s.records[c.Name] = doc
	}
	return raw, err
}
