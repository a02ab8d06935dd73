package distlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// grace is how long a store may take to say what became of a command whose context has ended. It
// knows more than we do: whether the command was sent at all.
const grace = 10 * time.Millisecond

// A promptStore is a store whose commands end with their contexts, whatever the store under it does:
// a command that does not notice is left to itself, and its outcome is unknown. GrantStream is for the
// background alone, and what is done inside of a transaction belongs to the session of its caller:
// these are as prompt as the store.
type promptStore struct {
	catalog.Catalog
	clock clock.Clock
	sent  *sentCommands
}

// result is what a command left behind.
type result[T any] struct {
	value  T
	err    error
	panics any
}

// within carries out a command, as long as ctx lasts, and counts it. A panic in it is the caller's.
func within[T any](ctx context.Context, p *promptStore, kind command, do func() (T, error)) (
	T, error,
) {
	if ctx == nil || ctx.Err() == nil {
		p.sent.add(kind)
	}
	return uncounted(ctx, p, kind, do)
}

// uncounted is within for what goes on with a command that was counted.
func uncounted[T any](ctx context.Context, p *promptStore, kind command, do func() (T, error)) (
	T, error,
) {
	var none T
	if ctx == nil || ctx.Done() == nil {
		return do()
	}
	if ctx.Err() != nil {
		return none, fmt.Errorf("not sent: %w", endOf(ctx))
	}
	done := make(chan result[T], 1)
	go func() { // ends with the command
		var r result[T]
		defer func() {
			r.panics = recover()
			done <- r
		}()
		r.value, r.err = do()
	}()
	r, ok := await(ctx, p.clock, done)
	switch {
	case r.panics != nil:
		panic(r.panics)
	case ok:
		return r.value, r.err
	}
	outcome := catalog.ErrUnavailable
	if commandKinds[kind].writes {
		outcome = catalog.ErrUnknownOutcome
	}
	return none, fmt.Errorf("%w: the store did not answer in time: %w", outcome, endOf(ctx))
}

// endOf says why a context has ended: that we ended it, which is no cancellation of the caller's, or what it
// says itself.
func endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errTimeUp) || errors.Is(cause, ErrClosed) {
		return cause
	}
	return ctx.Err()
}

// await receives from a channel as long as ctx lasts, and a grace longer.
func await[T any](ctx context.Context, by clock.Clock, c <-chan T) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-ctx.Done():
	}
	timer := by.NewTimer(grace)
	defer timer.Stop()
	select {
	case v = <-c:
		return v, true
	case <-timer.C():
		return v, false
	}
}

// run is within for a command without a result.
func (p *promptStore) run(ctx context.Context, kind command, do func() error) error {
	_, err := within(ctx, p, kind, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// runUnder is run for a command that may be a part of the transaction under the lock of s. Then it is as
// prompt as the store: a session of the driver is for one command at a time.
func (p *promptStore) runUnder(ctx context.Context, s catalog.Session, kind command, do func() error) error {
	if ctx == nil || catalog.TransactionUnder(ctx, s) == nil {
		return p.run(ctx, kind, do)
	}
	p.sent.add(kind)
	return do()
}

// A row is one of a listing; more is false after the last.
type row[T any] struct {
	value T
	err   error
	more  bool
}

// promptly is a listing that ends with ctx, and counts as one command however many rows it has. To close its cursor is a command, too: once ctx has ended the caller
// does not wait for it.
func promptly[T any](ctx context.Context, p *promptStore, kind command, list iter.Seq2[T, error],
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		next, stop := iter.Pull2(list)
		for ask := within[row[T]]; ; ask = uncounted[row[T]] {
			r, late := ask(ctx, p, kind, func() (r row[T], _ error) {
				if r.value, r.err, r.more = next(); ctx.Err() != nil {
					stop()
				}
				return r, nil
			})
			if late != nil { // the command that goes on will stop, if there is one
				if !errors.Is(late, catalog.ErrUnavailable) {
					go stop()
				}
				var none T
				yield(none, late)
				return
			}
			if !r.more || !yield(r.value, r.err) {
				stop()
				return
			}
		}
	}
}

// List implements [catalog.Operator].
func (p *promptStore) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	return promptly(ctx, p, toList, func(yield func(catalog.Snapshot, error) bool) {
		p.Catalog.List(ctx, waited)(yield)
	})
}

// ReadHistory implements [catalog.History].
func (p *promptStore) ReadHistory(ctx context.Context, q catalog.HistoryQuery) iter.Seq2[catalog.HistoryEntry, error] {
	return promptly(ctx, p, toReadHistory, func(yield func(catalog.HistoryEntry, error) bool) {
		p.Catalog.ReadHistory(ctx, q)(yield)
	})
}

// PrepareHistory implements [catalog.History].
func (p *promptStore) PrepareHistory(ctx context.Context, keep time.Duration) ([]string, error) {
	return within(ctx, p, toRecord, func() ([]string, error) { return p.Catalog.PrepareHistory(ctx, keep) })
}

// AppendHistory implements [catalog.History].
func (p *promptStore) AppendHistory(ctx context.Context, entries []catalog.HistoryEntry) error {
	return p.run(ctx, toRecord, func() error { return p.Catalog.AppendHistory(ctx, entries) })
}

// PruneHistory implements [catalog.History].
func (p *promptStore) PruneHistory(ctx context.Context, before time.Time, most int) (int, error) {
	return within(ctx, p, toRecord, func() (int, error) { return p.Catalog.PruneHistory(ctx, before, most) })
}

// Confirm implements [catalog.Locks].
func (p *promptStore) Confirm(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	return within(ctx, p, toConfirm, func() (catalog.Lock, error) { return p.Catalog.Confirm(ctx, g) })
}

// SeedFence implements [catalog.Locks].
func (p *promptStore) SeedFence(ctx context.Context, s catalog.Session, atLeast int64) (
	catalog.Lock, error,
) {
	return within(ctx, p, toSeedFence, func() (catalog.Lock, error) {
		return p.Catalog.SeedFence(ctx, s, atLeast)
	})
}

// Renew implements [catalog.Locks].
func (p *promptStore) Renew(ctx context.Context, r catalog.Renewal) error {
	return p.runUnder(ctx, r.Session, toRenew, func() error { return p.Catalog.Renew(ctx, r) })
}

// Condemn implements [catalog.Locks].
func (p *promptStore) Condemn(ctx context.Context, process string, watched *catalog.Ping,
	c catalog.Condemnation) error {
	return p.run(ctx, toCondemn, func() error { return p.Catalog.Condemn(ctx, process, watched, c) })
}

// Witness implements [catalog.Locks].
func (p *promptStore) Witness(ctx context.Context, watched catalog.Ping, s catalog.Sight) error {
	return p.run(ctx, toWitness, func() error { return p.Catalog.Witness(ctx, watched, s) })
}

// Overtake implements [catalog.Locks].
func (p *promptStore) Overtake(ctx context.Context, g catalog.Request, from catalog.Holder) (
	catalog.Lock, error,
) {
	return within(ctx, p, toOvertake, func() (catalog.Lock, error) {
		return p.Catalog.Overtake(ctx, g, from)
	})
}

// PutFirst implements [catalog.Locks].
func (p *promptStore) PutFirst(ctx context.Context, s catalog.Session, to bson.ObjectID) error {
	return p.runUnder(ctx, s, toReorder, func() error { return p.Catalog.PutFirst(ctx, s, to) })
}

// RequestYield implements [catalog.Locks].
func (p *promptStore) RequestYield(ctx context.Context, name, by, why string) error {
	return p.run(ctx, toRequestYield, func() error { return p.Catalog.RequestYield(ctx, name, by, why) })
}

// Read implements [catalog.Locks].
func (p *promptStore) Read(ctx context.Context, name string) (catalog.Lock, error) {
	return within(ctx, p, toLook, func() (catalog.Lock, error) { return p.Catalog.Read(ctx, name) })
}

// Ping implements [catalog.Pings].
func (p *promptStore) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	return within(ctx, p, toPing, func() (catalog.Pinged, error) { return p.Catalog.Ping(ctx, b) })
}

// RemovePing implements [catalog.Pings].
func (p *promptStore) RemovePing(ctx context.Context, process string) error {
	return p.run(ctx, toRemovePing, func() error { return p.Catalog.RemovePing(ctx, process) })
}

// Held implements [catalog.Pings].
func (p *promptStore) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	return within(ctx, p, toReap, func() ([]catalog.HeldSession, error) {
		return p.Catalog.Held(ctx, process)
	})
}

// HeldSummary implements [catalog.Pings].
func (p *promptStore) HeldSummary(ctx context.Context, process string) (catalog.HeldSummary, error) {
	return within(ctx, p, toReap, func() (catalog.HeldSummary, error) {
		return p.Catalog.HeldSummary(ctx, process)
	})
}

// Prune implements [catalog.Pings].
func (p *promptStore) Prune(ctx context.Context, before time.Time) (int, error) {
	return within(ctx, p, toPrune, func() (int, error) { return p.Catalog.Prune(ctx, before) })
}

// PruneLocks implements [catalog.Pings].
func (p *promptStore) PruneLocks(ctx context.Context, before time.Time, after string, most int) (int, string, error) {
	type result struct {
		pruned int
		next   string
	}
	r, err := within(ctx, p, toPrune, func() (r result, err error) {
		r.pruned, r.next, err = p.Catalog.PruneLocks(ctx, before, after, most)
		return r, err
	})
	return r.pruned, r.next, err
}

// Prepare implements [catalog.Pings].
func (p *promptStore) Prepare(ctx context.Context) ([]string, error) {
	return within(ctx, p, toPrepare, func() ([]string, error) { return p.Catalog.Prepare(ctx) })
}

// Hello implements [catalog.Pings].
func (p *promptStore) Hello(ctx context.Context) (catalog.Server, error) {
	return within(ctx, p, toHello, func() (catalog.Server, error) { return p.Catalog.Hello(ctx) })
}

// Break implements [catalog.Operator].
func (p *promptStore) Break(ctx context.Context, s catalog.Session, fence int64, why string) (
	catalog.Lock, error,
) {
	return within(ctx, p, toBreakLock, func() (catalog.Lock, error) {
		return p.Catalog.Break(ctx, s, fence, why)
	})
}

// Enter implements [catalog.Queues].
func (p *promptStore) Enter(ctx context.Context, g catalog.Request, how catalog.EnterMode) (
	catalog.Lock, error,
) {
	return within(ctx, p, toAcquire, func() (catalog.Lock, error) {
		return p.Catalog.Enter(ctx, g, how)
	})
}

// Leave implements [catalog.Queues].
func (p *promptStore) Leave(ctx context.Context, s catalog.Session) ([]catalog.Grant, error) {
	return within(ctx, p, toRelease, func() ([]catalog.Grant, error) { return p.Catalog.Leave(ctx, s) })
}

// Evict implements [catalog.Queues].
func (p *promptStore) Evict(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Grant, error,
) {
	return within(ctx, p, toEvict, func() ([]catalog.Grant, error) {
		return p.Catalog.Evict(ctx, dead, evidence)
	})
}

// GrantNext implements [catalog.Queues].
func (p *promptStore) GrantNext(ctx context.Context, name string) ([]catalog.Grant, error) {
	return within(ctx, p, toGrant, func() ([]catalog.Grant, error) {
		return p.Catalog.GrantNext(ctx, name)
	})
}

// Snapshots implements [catalog.Queues].
func (p *promptStore) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	return within(ctx, p, toLook, func() (map[string]catalog.Snapshot, error) {
		return p.Catalog.Snapshots(ctx, names)
	})
}

// WaitedUnder implements [catalog.Queues].
func (p *promptStore) WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
	map[string]catalog.Snapshot, error,
) {
	return within(ctx, p, toList, func() (map[string]catalog.Snapshot, error) {
		return p.Catalog.WaitedUnder(ctx, processes, held)
	})
}

// PutNote implements [catalog.Pings].
func (p *promptStore) PutNote(ctx context.Context, process string, n catalog.Note) error {
	return p.run(ctx, toNote, func() error { return p.Catalog.PutNote(ctx, process, n) })
}

// HeldOrFree implements [catalog.Queues].
func (p *promptStore) HeldOrFree(ctx context.Context, process string, names []string) (
	[]catalog.Grant, []string, error,
) {
	type answer struct {
		grants []catalog.Grant
		free   []string
	}
	a, err := within(ctx, p, toAsk, func() (a answer, err error) {
		a.grants, a.free, err = p.Catalog.HeldOrFree(ctx, process, names)
		return a, err
	})
	return a.grants, a.free, err
}

// GrantStream implements [catalog.Queues]. It is as prompt as the store.
func (p *promptStore) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	p.sent.add(toOpenStream)
	return p.Catalog.GrantStream(ctx, process)
}

// EnterTransaction implements [catalog.Queues]. It is as prompt as the store.
func (p *promptStore) EnterTransaction(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	p.sent.add(toAcquire)
	return p.Catalog.EnterTransaction(ctx, g)
}

// Transact implements [catalog.Catalog]. It is as prompt as the store.
func (p *promptStore) Transact(ctx context.Context, s catalog.Session,
	run func(ctx context.Context) error) error {
	p.sent.add(toTransact)
	return p.Catalog.Transact(ctx, s, run)
}
