package catalog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
)

type partial struct{ *memcatalog.Catalog }

var errPart = errors.New("one batch failed")

func (partial) Prepare(context.Context) ([]string, error) { return []string{"ttl"}, errPart }
func (partial) Prune(context.Context, []catalog.OldPing) (int, error) {
	return 3000, errPart
}
func (partial) PruneLocks(context.Context, time.Time, string, int) (int, string, error) {
	return 7, "m", errPart
}

type operation = func(context.Context) error

func pass(ctx context.Context, _ catalog.Call, do operation) error { return do(ctx) }

// With a hook that only forwards each call, Intercept returns the results of the store, even a
// result that comes with an error.
func TestIntercept_PartialResults(t *testing.T) {
	c := catalog.Intercept(partial{memcatalog.New(memcatalog.Options{})}, pass)
	if w, err := c.Prepare(t.Context()); len(w) != 1 || !errors.Is(err, errPart) {
		t.Errorf("prepare: %v, %v", w, err)
	}
	if n, err := c.Prune(t.Context(), nil); n != 3000 || !errors.Is(err, errPart) {
		t.Errorf("prune: %v, %v", n, err)
	}
	n, next, err := c.PruneLocks(t.Context(), time.Time{}, "", 1)
	if n != 7 || next != "m" || !errors.Is(err, errPart) {
		t.Errorf("prune locks: %v, %q, %v", n, next, err)
	}
}

// Each range loop over the iterator that List returns sends a new command.
func TestIntercept_ListTwice(t *testing.T) {
	first := 0
	count := func(ctx context.Context, call catalog.Call, do operation) error {
		if call.Row == 0 {
			first++
		}
		return do(ctx)
	}
	c := catalog.Intercept(memcatalog.New(memcatalog.Options{}), count)
	put(t, c, "a")
	put(t, c, "b")
	first = 0
	list := c.List(t.Context(), false)
	for range 2 {
		for range list {
		}
	}
	assert.Equal(t, first, 2, "the hook saw %d first rows, want %d")
}

func put(t *testing.T, c catalog.Catalog, name string) {
	s := catalog.Session{Name: name, TS: bson.NewObjectID()}
	r := catalog.Request{Session: s, Process: "p", Takeover: 900e9}
	assert.Value(catalogtest.On(c).Enter(t.Context(), r, catalog.Try))(t)
}
