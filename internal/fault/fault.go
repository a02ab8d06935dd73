// Package fault puts a hook before every operation of a store, so that a test or a scheduler can
// count it, delay it, refuse it, apply it and lose the reply, or apply it late. It changes nothing
// by itself.
package fault

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// An Op names an operation of a catalog.
type Op string

// The operations.
const (
	Acquire     Op = "acquire" // to enter by Claim
	Confirm     Op = "confirm"
	SeedFence   Op = "seed fence"
	Renew       Op = "renew"
	Look        Op = "look"
	Condemn     Op = "condemn"
	Witness     Op = "witness"
	Overtake    Op = "overtake"
	Release     Op = "release"
	Read        Op = "read"
	Ping        Op = "ping"
	PutNote     Op = "put note"
	RemovePing  Op = "remove ping"
	Held        Op = "held"
	HeldSummary Op = "tally"
	Prune       Op = "prune"
	PruneLocks  Op = "prune locks"
	Prepare     Op = "prepare"
	Hello       Op = "hello"
	List        Op = "list"
	Break       Op = "break"
	Transact    Op = "transact"

	PutFirst     Op = "put first"
	RequestYield Op = "request yield"

	Enter            Op = "enter"
	Evict            Op = "bury"
	GrantNext        Op = "settle"
	HeldOrFree       Op = "awarded"
	Waiting          Op = "waiting"
	WaitedUnder      Op = "waited under"
	GrantStream      Op = "notices" // the opening of a stream
	Notice           Op = "notice"  // each Next of one
	EnterTransaction Op = "enter transaction"

	PrepareHistory Op = "prepare history"
	AppendHistory  Op = "append history"
	PruneHistory   Op = "prune history"
	ReadHistory    Op = "read history"
)

// A Call is one operation about to happen.
type Call struct {
	Op      Op
	Subject string // lock name or process id; empty when the operation has none
}

// A Hook decides what becomes of a call. It may run apply, which carries the operation out and
// returns its error, once, or not at all; what it returns is what the caller gets. An operation
// whose hook returns an error has no result.
type Hook func(ctx context.Context, call Call, apply func() error) error

// Catalog passes every operation through a hook and counts it. Safe for concurrent use.
type Catalog struct {
	inner catalog.Catalog

	mu     sync.Mutex // guards hook and counts
	hook   Hook
	counts map[Op]int
}

var _ catalog.Catalog = (*Catalog)(nil)

// Wrap returns a store that behaves as inner until a hook is set.
func Wrap(inner catalog.Catalog) *Catalog {
	return &Catalog{inner: inner, counts: map[Op]int{}}
}

// Set sets the hook; nil removes it.
func (c *Catalog) Set(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = h
}

// Count returns how often an operation was called.
func (c *Catalog) Count(op Op) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[op]
}

// Total returns how many operations were called.
func (c *Catalog) Total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, count := range c.counts {
		n += count
	}
	return n
}

func (c *Catalog) do(ctx context.Context, op Op, subject string, apply func() error) error {
	c.mu.Lock()
	c.counts[op]++
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return apply()
	}
	return hook(ctx, Call{op, subject}, apply)
}

// through runs one operation with a result. The result of an apply that outlives the call is
// dropped, so a hook may run it late in another goroutine: what a server has been sent it carries out
// whether or not the caller's context has ended meanwhile.
func through[T any](ctx context.Context, c *Catalog, op Op, subject string,
	run func(context.Context) (T, error)) (T, error) {
	var mu sync.Mutex // guards result
	var result T
	sent := ctx.Err() == nil
	err := c.do(ctx, op, subject, func() error {
		at := ctx
		if sent && ctx.Err() != nil {
			at = context.WithoutCancel(ctx)
		}
		got, err := run(at)
		mu.Lock()
		defer mu.Unlock()
		result = got
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// Lost says that a command was applied, or may have been, and its reply never came.
func Lost(op Op) error {
	return fmt.Errorf("%s: reply lost on purpose: %w", op, catalog.ErrUnknownOutcome)
}

// Refused says that the server could not be reached and nothing was applied.
func Refused(op Op) error {
	return fmt.Errorf("%s: refused on purpose: %w", op, catalog.ErrUnavailable)
}

func (c *Catalog) Confirm(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	return through(ctx, c, Confirm, g.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.Confirm(ctx, g)
	})
}

func (c *Catalog) SeedFence(ctx context.Context, s catalog.Session, n int64) (catalog.Lock, error) {
	return through(ctx, c, SeedFence, s.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.SeedFence(ctx, s, n)
	})
}

func (c *Catalog) Renew(ctx context.Context, r catalog.Renewal) error {
	return c.do(ctx, Renew, r.Name, func() error { return c.inner.Renew(ctx, r) })
}

func (c *Catalog) Condemn(ctx context.Context, process string, watched *catalog.Ping,
	why catalog.Condemnation) error {
	return c.do(ctx, Condemn, process, func() error {
		return c.inner.Condemn(ctx, process, watched, why)
	})
}

func (c *Catalog) Witness(ctx context.Context, watched catalog.Ping, s catalog.Sight) error {
	return c.do(ctx, Witness, watched.Process, func() error { return c.inner.Witness(ctx, watched, s) })
}

func (c *Catalog) Overtake(ctx context.Context, g catalog.Request, from catalog.Holder) (
	catalog.Lock, error) {
	return through(ctx, c, Overtake, g.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.Overtake(ctx, g, from)
	})
}

func (c *Catalog) PutFirst(ctx context.Context, s catalog.Session, to bson.ObjectID) error {
	return c.do(ctx, PutFirst, s.Name, func() error { return c.inner.PutFirst(ctx, s, to) })
}

func (c *Catalog) RequestYield(ctx context.Context, name, by, why string) error {
	return c.do(ctx, RequestYield, name, func() error { return c.inner.RequestYield(ctx, name, by, why) })
}

func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	return through(ctx, c, Read, name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.Read(ctx, name)
	})
}

func (c *Catalog) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	return through(ctx, c, Ping, b.Process, func(ctx context.Context) (catalog.Pinged, error) {
		return c.inner.Ping(ctx, b)
	})
}

func (c *Catalog) PutNote(ctx context.Context, process string, n catalog.Note) error {
	return c.do(ctx, PutNote, process, func() error { return c.inner.PutNote(ctx, process, n) })
}

func (c *Catalog) RemovePing(ctx context.Context, process string) error {
	return c.do(ctx, RemovePing, process, func() error { return c.inner.RemovePing(ctx, process) })
}

func (c *Catalog) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	return through(ctx, c, Held, process, func(ctx context.Context) ([]catalog.HeldSession, error) {
		return c.inner.Held(ctx, process)
	})
}

func (c *Catalog) HeldSummary(ctx context.Context, process string) (catalog.HeldSummary, error) {
	return through(ctx, c, HeldSummary, process, func(ctx context.Context) (catalog.HeldSummary, error) {
		return c.inner.HeldSummary(ctx, process)
	})
}

func (c *Catalog) Prune(ctx context.Context, before time.Time) (int, error) {
	return through(ctx, c, Prune, "", func(ctx context.Context) (int, error) {
		return c.inner.Prune(ctx, before)
	})
}

func (c *Catalog) PruneLocks(ctx context.Context, before time.Time, after string, most int) (
	pruned int, next string, err error) {
	err = c.do(ctx, PruneLocks, after, func() (err error) {
		pruned, next, err = c.inner.PruneLocks(ctx, before, after, most)
		return err
	})
	return pruned, next, err
}

func (c *Catalog) Prepare(ctx context.Context) ([]string, error) {
	return through(ctx, c, Prepare, "", c.inner.Prepare)
}

func (c *Catalog) Hello(ctx context.Context) (catalog.Server, error) {
	return through(ctx, c, Hello, "", c.inner.Hello)
}

// List implements [catalog.Operator]. The hook runs once, before the first row; it sees whether those
// are wanted who wait.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	op := List
	if waited {
		op = Waiting
	}
	if err := c.do(ctx, op, "", func() error { return nil }); err != nil {
		return func(yield func(catalog.Snapshot, error) bool) { yield(catalog.Snapshot{}, err) }
	}
	return c.inner.List(ctx, waited)
}

func (c *Catalog) Break(ctx context.Context, s catalog.Session, fence int64, why string) (
	catalog.Lock, error) {
	return through(ctx, c, Break, s.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.Break(ctx, s, fence, why)
	})
}

func (c *Catalog) Transact(ctx context.Context, s catalog.Session,
	run func(ctx context.Context) error) error {
	return c.do(ctx, Transact, s.Name, func() error { return c.inner.Transact(ctx, s, run) })
}
