package catalog

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// A Call describes an operation that is about to run.
type Call struct {
	Op Op
	// Transition is the argument of Apply; nil for another operation.
	Transition Transition
	// PingChange is the argument of ApplyPing; nil for another operation.
	PingChange PingChange
	// Names contains the names of the locks, or one process id. It may be empty.
	Names []string
	// Row is the number of a row of a listing, from 0. The hook runs once for each row. The listing
	// sends its command at row 0.
	Row int
}

// A Hook runs instead of an operation. The given function runs the operation and returns its error.
// The hook may call this function at most once, in any goroutine. The caller of the operation
// receives the error of the hook. If this error does not match the error of the operation, the
// caller receives no result.
type Hook func(ctx context.Context, call Call, do func(ctx context.Context) error) error

// Intercept returns a store that runs a hook around every operation on the given store. If the hook
// is safe for concurrent use, the returned store is too.
func Intercept(store Catalog, hook Hook) Catalog { return &intercepted{store, hook} }

type intercepted struct {
	inner Catalog
	hook  Hook
}

// Through runs a hook around the given operation and returns the result of the operation. If the
// operation returns after the hook, Through discards the result.
func Through[T any](
	ctx context.Context, hook Hook, c Call, do func(context.Context) (T, error),
) (T, error) {
	var mu sync.Mutex // guards result and failure
	var result, none T
	var failure error
	err := hook(ctx, c, func(ctx context.Context) error {
		got, err := do(ctx)
		mu.Lock()
		defer mu.Unlock()
		result, failure = got, err
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil && !errors.Is(err, failure) {
		return none, err
	}
	return result, err
}

type both[A, B any] struct {
	a A
	b B
}

func pair[A, B any](a A, b B, err error) (both[A, B], error) { return both[A, B]{a, b}, err }

// rows runs the hook once for each row of a listing. After an error of the hook, it closes the
// cursor in another goroutine, because closing a cursor may send a command and wait for the reply.
func rows[T any](
	ctx context.Context, hook Hook, c Call, list func(context.Context) iter.Seq2[T, error],
) iter.Seq2[T, error] {
	type row struct {
		value T
		err   error
		more  bool
	}
	return func(yield func(T, error) bool) {
		c, asked := c, ctx
		next, stop := iter.Pull2(func(yield func(T, error) bool) { list(asked)(yield) })
		reading := make(chan struct{}, 1) // contains a value during a read; guards over
		over := false
		for ; ; c.Row++ {
			r, err := Through(ctx, hook, c, func(ctx context.Context) (r row, _ error) {
				reading <- struct{}{}
				defer func() { <-reading }()
				if !over {
					if c.Row == 0 {
						asked = ctx
					}
					r.value, r.err, r.more = next()
				}
				return r, nil
			})
			if err != nil {
				go func() { // ends after the last read; no caller can handle a panic
					defer func() { _ = recover() }()
					reading <- struct{}{}
					defer func() { <-reading }()
					over = true
					stop()
				}()
				var none T
				yield(none, err)
				return
			}
			if !r.more || !yield(r.value, r.err) {
				stop()
				return
			}
		}
	}
}

func with[A, T any](
	do func(context.Context, A) (T, error), a A,
) func(context.Context) (T, error) {
	return func(ctx context.Context) (T, error) { return do(ctx, a) }
}

func of(op Op, names ...string) Call { return Call{Op: op, Names: names} }

func (i *intercepted) Apply(ctx context.Context, t Transition) (Lock, []Grant, error) {
	c := of(t.Op(), t.On())
	c.Transition = t
	r, err := Through(ctx, i.hook, c, func(ctx context.Context) (both[Lock, []Grant], error) {
		return pair(i.inner.Apply(ctx, t))
	})
	return r.a, r.b, err
}

func (i *intercepted) Read(ctx context.Context, name string) (Lock, error) {
	return Through(ctx, i.hook, of(OpRead, name), with(i.inner.Read, name))
}

func (i *intercepted) List(ctx context.Context, waited bool) iter.Seq2[Snapshot, error] {
	op := OpList
	if waited {
		op = OpListWaited
	}
	return rows(ctx, i.hook, of(op), func(ctx context.Context) iter.Seq2[Snapshot, error] {
		return i.inner.List(ctx, waited)
	})
}

func (i *intercepted) Ping(ctx context.Context, b Heartbeat) (Pinged, error) {
	return Through(ctx, i.hook, of(OpPing, b.Process), with(i.inner.Ping, b))
}

func (i *intercepted) ApplyPing(ctx context.Context, t PingChange) error {
	c := of(t.Op(), t.On())
	c.PingChange = t
	return i.hook(ctx, c, func(ctx context.Context) error { return i.inner.ApplyPing(ctx, t) })
}

func (i *intercepted) Held(ctx context.Context, process string) ([]HeldSession, error) {
	return Through(ctx, i.hook, of(OpHeld, process), with(i.inner.Held, process))
}

func (i *intercepted) OldPings(ctx context.Context, before time.Time) ([]OldPing, error) {
	return Through(ctx, i.hook, of(OpOldPings), with(i.inner.OldPings, before))
}

func (i *intercepted) Prune(ctx context.Context, old []OldPing) (int, error) {
	return Through(ctx, i.hook, of(OpPrune), with(i.inner.Prune, old))
}

func (i *intercepted) PruneLocks(ctx context.Context, before time.Time, after string, limit int) (
	int, string, error,
) {
	c := of(OpPruneLocks, after)
	r, err := Through(ctx, i.hook, c, func(ctx context.Context) (both[int, string], error) {
		return pair(i.inner.PruneLocks(ctx, before, after, limit))
	})
	return r.a, r.b, err
}

func (i *intercepted) Prepare(ctx context.Context) ([]string, error) {
	return Through(ctx, i.hook, of(OpPrepare), i.inner.Prepare)
}

func (i *intercepted) Hello(ctx context.Context) (Server, error) {
	return Through(ctx, i.hook, of(OpHello), i.inner.Hello)
}

func (i *intercepted) Transact(
	ctx context.Context, s Session, run func(context.Context) error,
) error {
	return i.hook(ctx, of(OpTransact, s.Name), func(ctx context.Context) error {
		return i.inner.Transact(ctx, s, run)
	})
}

func (i *intercepted) Snapshots(ctx context.Context, names []string) (Looks, error) {
	return Through(ctx, i.hook, of(OpSnapshots, names...), with(i.inner.Snapshots, names))
}

func (i *intercepted) HeldOrFree(ctx context.Context, process string, names, always []string) (
	[]Lock, error,
) {
	c := of(OpHeldOrFree, names...)
	return Through(ctx, i.hook, c, func(ctx context.Context) ([]Lock, error) {
		return i.inner.HeldOrFree(ctx, process, names, always)
	})
}

func (i *intercepted) EnterTransaction(ctx context.Context, r Request) (Lock, error) {
	return Through(ctx, i.hook, of(OpEnterTransaction, r.Name), with(i.inner.EnterTransaction, r))
}

// GrantStream runs the hook when it opens the stream, and for each call of Next.
func (i *intercepted) GrantStream(ctx context.Context, process string) (GrantStream, error) {
	s, err := Through(ctx, i.hook, of(OpGrantStream, process), with(i.inner.GrantStream, process))
	if err != nil {
		return nil, err
	}
	return &interceptedStream{s, i.hook, process}, nil
}

type interceptedStream struct {
	GrantStream
	hook    Hook
	process string
}

func (s *interceptedStream) Next(ctx context.Context) ([]Grant, error) {
	return Through(ctx, s.hook, of(OpNextGrants, s.process), s.GrantStream.Next)
}
