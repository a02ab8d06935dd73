package fault

import (
	"context"
	"iter"
	"time"

	"mongodlm/catalog"
)

// Kept is a Catalog that keeps a history.
type Kept struct {
	*Catalog
	catalog.History
}

// WrapKept is Wrap of a store that keeps a history, which passes through the same hook.
func WrapKept(inner interface {
	catalog.Catalog
	catalog.History
}) *Kept {
	c := Wrap(inner)
	return &Kept{c, kept{inner, c}}
}

type kept struct {
	inner catalog.History
	c     *Catalog
}

// through passes an operation through the hook of the other operations.
func through[T any](ctx context.Context, k kept, call Call, do func(context.Context) (T, error)) (T,
	error) {
	hook := func(ctx context.Context, _ catalog.Call, do func(context.Context) error) error {
		return k.c.pass(ctx, call, do)
	}
	return catalog.Through(ctx, hook, catalog.Call{}, do)
}

func (k kept) PrepareHistory(ctx context.Context, keep time.Duration) ([]string, error) {
	return through(ctx, k, Call{Op: PrepareHistory}, func(ctx context.Context) ([]string, error) {
		return k.inner.PrepareHistory(ctx, keep)
	})
}

func (k kept) AppendHistory(ctx context.Context, entries []catalog.HistoryEntry) error {
	return k.c.pass(ctx, Call{Op: AppendHistory}, func(ctx context.Context) error {
		return k.inner.AppendHistory(ctx, entries)
	})
}

func (k kept) PruneHistory(ctx context.Context, before time.Time, most int) (int, error) {
	return through(ctx, k, Call{Op: PruneHistory}, func(ctx context.Context) (int, error) {
		return k.inner.PruneHistory(ctx, before, most)
	})
}

// ReadHistory reads all of it before the first entry is told.
func (k kept) ReadHistory(ctx context.Context,
	q catalog.HistoryQuery) iter.Seq2[catalog.HistoryEntry, error] {
	type row struct {
		entry catalog.HistoryEntry
		err   error
	}
	return func(yield func(catalog.HistoryEntry, error) bool) {
		all, err := through(ctx, k, Call{ReadHistory, q.Name},
			func(ctx context.Context) (all []row, _ error) {
				for entry, err := range k.inner.ReadHistory(ctx, q) {
					all = append(all, row{entry, err})
				}
				return all, nil
			})
		if err != nil {
			yield(catalog.HistoryEntry{}, err)
			return
		}
		for _, one := range all {
			if !yield(one.entry, one.err) {
				return
			}
		}
	}
}
