package distlock_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

type oddStore struct {
	catalog.Catalog
	prepare func() ([]string, error)
	list    func(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error]
	prune   func(after string) (int, string, error)
}

func (s *oddStore) Prepare(ctx context.Context) ([]string, error) {
	if s.prepare != nil {
		return s.prepare()
	}
	return s.Catalog.Prepare(ctx)
}
func (s *oddStore) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	if s.list != nil {
		return s.list(ctx, waited)
	}
	return s.Catalog.List(ctx, waited)
}
func (s *oddStore) PruneLocks(ctx context.Context, before time.Time, after string, most int) (
	int, string, error,
) {
	if s.prune != nil {
		return s.prune(after)
	}
	return s.Catalog.PruneLocks(ctx, before, after, most)
}

// A process that may not create indexes is still warned of an index that deletes locks.
func TestStore_Prepare_Denied_WarnsOfTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var out assert.Log
		m, err := distlock.New(t.Context(),
			distlock.Config{Logger: zerolog.New(&out), Catalog: &oddStore{Catalog: w.mem,
				prepare: func() ([]string, error) {
					return []string{`index "x_1" deletes documents by their age`}, &catalog.PrivilegeError{}
				}}})
		assert.Must(t, err)
		time.Sleep(time.Minute)
		m.Close(context.Background())
		if !strings.Contains(out.String(), "deletes documents") {
			t.Errorf("no warning of the index: %s", out.String())
		}
	})
}

func inspects(t *testing.T, s *oddStore, do func(i *distlock.Inspector)) {
	i := assert.Value(distlock.NewInspector(t.Context(), distlock.Config{Catalog: s}))(t)
	do(i)
}

// List returns when its context ends, even if the store's List blocks.
func TestStore_List_EagerHang_EndsWithContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		free := make(chan struct{})
		s := &oddStore{Catalog: w.mem}
		s.list = func(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
			<-free
			return w.mem.List(ctx, waited)
		}
		inspects(t, s, func(i *distlock.Inspector) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			time.AfterFunc(time.Hour, func() { close(free) })
			begun := time.Now()
			for _, err := range i.Locks(ctx) {
				_ = err
			}
			if d := time.Since(begun); d > 2*time.Second {
				t.Errorf("the listing took %v", d)
			}
			time.Sleep(2 * time.Hour)
			synctest.Wait()
		})
	})
}

// A listing that is abandoned while it waits for a row leaves no goroutine. A panic while it closes
// is ignored.
func TestStore_List_GivenUp_ClosingPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start(nil).mustTry("a")
		s := &oddStore{Catalog: w.mem}
		s.list = func(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
			return func(yield func(catalog.Snapshot, error) bool) {
				time.Sleep(time.Minute)
				if !yield(catalog.Snapshot{Lock: &catalog.Lock{Name: "a"}}, nil) {
					panic("closing")
				}
			}
		}
		inspects(t, s, func(i *distlock.Inspector) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for _, err := range i.Locks(ctx) {
				assert.Is(t, err, context.DeadlineExceeded)
			}
			time.Sleep(2 * time.Hour)
		})
	})
}

// Pruning continues after a failed batch.
func TestStore_PruneLocks_GoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var asked []string
		s := &oddStore{Catalog: w.mem}
		s.prune = func(after string) (int, string, error) {
			asked = append(asked, after)
			if after == "" {
				return 0, "m", errors.New("the delete failed")
			}
			return 0, "", nil
		}
		m := assert.Value(distlock.New(t.Context(), distlock.Config{Catalog: s, PruneLocks: true}))(t)
		time.Sleep(12 * time.Hour)
		m.Close(context.Background())
		if !strings.Contains(strings.Join(asked, ","), "m") {
			t.Errorf("asked for what is after %q", asked)
		}
	})
}
