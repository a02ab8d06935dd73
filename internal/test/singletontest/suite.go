// Package singletontest is the conformance suite of [singleton.Store]. A store that passes it can
// keep the settings and the records of loops and schedules.
package singletontest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// A Store is an empty store under test. Put replaces a document of a collection.
type Store struct {
	singleton.Store
	Put func(ctx context.Context, collection string, doc bson.D) error
}

// Run runs each case on a new store.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	for name, run := range map[string]func(t *testing.T, s Store){
		"Change_InsertsAndRaises":   changeInserts,
		"Change_Dates":              changeDates,
		"Change_Stale":              changeStale,
		"Change_Revision":           changeRevision,
		"Change_FenceIsNoNumber":    changeMalformed,
		"Change_ManyAtOnce":         changeRace,
		"Change_ContextHasEnded":    changeEnded,
		"Ask_OfThatRevisionOnly":    ask,
		"Settings_OnlyThoseAsked":   settings,
		"Records_InTheOrderOfNames": records,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

// ask checks that Ask counts a request only if the record has the given revision. A request does
// not change the revision.
func ask(t *testing.T, s Store) {
	assert.Is(t, s.Ask(t.Context(), "a", 1), singleton.ErrChanged)
	change(t, s, singleton.Change{Name: "a", Fence: 1})
	for range 2 {
		assert.Must(t, s.Ask(t.Context(), "a", 1))
	}
	assert.Is(t, s.Ask(t.Context(), "a", 2), singleton.ErrChanged)
	set := bson.D{{Key: "state", Value: "done"}}
	raw := change(t, s, singleton.Change{Name: "a", Fence: 1, Rev: 1, Set: set})
	wantNumber(t, raw, "asks", 2)
	wantNumber(t, raw, "rev", 2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Ask(ended, "a", 2); err == nil {
		t.Error("a context that has ended")
	}
}

func change(t *testing.T, s Store, c singleton.Change) bson.Raw {
	t.Helper()
	raw, err := s.Change(t.Context(), c)
	if err != nil {
		t.Fatalf("Change(%+v): %v", c, err)
	}
	return raw
}

func wantNumber(t *testing.T, raw bson.Raw, field string, want int64) {
	t.Helper()
	if got, ok := raw.Lookup(field).AsInt64OK(); !ok || got != want {
		t.Errorf("%s is %v, want %d", field, raw.Lookup(field), want)
	}
}

func changeInserts(t *testing.T, s Store) {
	raw := change(t, s, singleton.Change{Name: "a", Fence: 3, Set: bson.D{{Key: "x", Value: "$y"}}})
	wantNumber(t, raw, "rev", 1)
	raw = change(t, s, singleton.Change{Name: "a", Fence: 5, Set: bson.D{{Key: "z", Value: int64(1)}}})
	wantNumber(t, raw, "rev", 2)
	wantNumber(t, raw, "fence", 5)
	if x := raw.Lookup("x").StringValue(); x != "$y" || raw.Lookup("_id").StringValue() != "a" {
		t.Errorf("the document is %v", raw)
	}
}

func changeDates(t *testing.T, s Store) {
	first := change(t, s, singleton.Change{Name: "a", Fence: 1, Dates: []string{"begun"}})
	begun, seen := first.Lookup("begun").Time(), first.Lookup("seen").Time()
	if begun.IsZero() || seen.Sub(begun).Abs() > time.Second {
		t.Errorf("begun %v, seen %v", begun, seen)
	}
	later := change(t, s, singleton.Change{Name: "a", Fence: 1})
	if !later.Lookup("begun").Time().Equal(begun) || later.Lookup("seen").Time().Before(seen) {
		t.Errorf("first %v, then %v", first, later)
	}
}

func changeStale(t *testing.T, s Store) {
	before := change(t, s, singleton.Change{Name: "a", Fence: 7})
	for _, rev := range []int64{0, 1} {
		_, err := s.Change(t.Context(), singleton.Change{Name: "a", Fence: 6, Rev: rev})
		assert.Is(t, err, singleton.ErrStale)
	}
	raws, err := s.Records(t.Context())
	if err != nil || len(raws) != 1 || !slices.Equal(raws[0], before) {
		t.Errorf("records %v, %v; before %v", raws, err, before)
	}
}

func changeRevision(t *testing.T, s Store) {
	_, err := s.Change(t.Context(), singleton.Change{Name: "a", Fence: 7, Rev: 1})
	assert.Is(t, err, singleton.ErrChanged) // no record exists yet
	change(t, s, singleton.Change{Name: "a", Fence: 7})
	raw := change(t, s, singleton.Change{Name: "a", Fence: 8, Rev: 1})
	wantNumber(t, raw, "rev", 2)
	_, err = s.Change(t.Context(), singleton.Change{Name: "a", Fence: 8, Rev: 1})
	assert.Is(t, err, singleton.ErrChanged)
}

func changeMalformed(t *testing.T, s Store) {
	doc := bson.D{{Key: "_id", Value: "a"}, {Key: "fence", Value: 1.0}, {Key: "rev", Value: 1.5}}
	assert.Must(t, s.Put(t.Context(), singleton.RecordsCollection, doc))
	_, err := s.Change(t.Context(), singleton.Change{Name: "a", Fence: 8, Rev: 1})
	assert.Is(t, err, singleton.ErrChanged)
	for _, fence := range []any{8.5, "many"} { // only a fence below that of the change is valid
		doc[1].Value = fence
		assert.Must(t, s.Put(t.Context(), singleton.RecordsCollection, doc))
		_, err := s.Change(t.Context(), singleton.Change{Name: "a", Fence: 8})
		var malformed *singleton.MalformedError
		if !errors.As(err, &malformed) || malformed.Field != "fence" {
			t.Errorf("fence %v: error is %v, want a *MalformedError of fence", fence, err)
		}
	}
	doc[1].Value, doc[2].Value = int64(1), "many"
	assert.Must(t, s.Put(t.Context(), singleton.RecordsCollection, doc))
	if raw, err := s.Change(t.Context(), singleton.Change{Name: "a", Fence: 8}); err == nil {
		t.Errorf("a rev that is a text was raised: %v", raw)
	}
}

// changeRace runs concurrent changes. If the changes name a revision, exactly one of them succeeds.
// Otherwise all of them succeed.
func changeRace(t *testing.T, s Store) {
	const n = 8
	count := func(rev int64) (done int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				_, err := s.Change(t.Context(), singleton.Change{Name: "a", Fence: 1, Rev: rev})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					done++
				} else if !errors.Is(err, singleton.ErrChanged) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return done
	}
	assert.Equal(t, count(0), n, "%d of %d changed it without a revision")
	if done := count(n); done != 1 {
		t.Errorf("%d changed revision %d, want 1", done, n)
	}
}

func changeEnded(t *testing.T, s Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Change(ctx, singleton.Change{Name: "a", Fence: 1}); err == nil {
		t.Error("it was changed")
	}
	if raws, err := s.Records(t.Context()); err != nil || len(raws) != 0 {
		t.Errorf("records %v, %v", raws, err)
	}
}

func settings(t *testing.T, s Store) {
	for _, name := range []string{"a", "b", "c"} {
		doc := bson.D{{Key: "_id", Value: name}, {Key: "stopped", Value: name == "b"}}
		assert.Must(t, s.Put(t.Context(), singleton.SettingsCollection, doc))
	}
	found, err := s.Settings(t.Context(), "b", "d", "a")
	if err != nil || len(found) != 2 || !found["b"].Lookup("stopped").Boolean() {
		t.Errorf("found %v, %v", found, err)
	}
}

func records(t *testing.T, s Store) {
	for _, name := range []string{"c", "a", "b"} {
		change(t, s, singleton.Change{Name: name, Fence: 1})
	}
	raws, err := s.Records(t.Context())
	var names []string
	for _, raw := range raws {
		names = append(names, raw.Lookup("_id").StringValue())
	}
	if err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("names %v, %v", names, err)
	}
}
