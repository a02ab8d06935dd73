// Package fault wraps a store and calls a hook for every operation. The hook can count, delay or
// refuse the operation. It can also apply the operation late, or apply it and lose the reply.
// Without a hook, every operation is applied.
package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// An Op names an operation of a catalog.
type Op = catalog.Op

// The operations of a catalog, under shorter names.
const (
	Acquire          = catalog.OpAcquire
	Enter            = catalog.OpEnter
	Release          = catalog.OpLeave
	Evict            = catalog.OpEvict
	GrantNext        = catalog.OpGrantNext
	Confirm          = catalog.OpConfirm
	SeedFence        = catalog.OpSeedFence
	Renew            = catalog.OpRenew
	PutFirst         = catalog.OpPutFirst
	Break            = catalog.OpBreak
	Ping             = catalog.OpPing
	Condemn          = catalog.OpCondemn
	Witness          = catalog.OpWitness
	RemovePing       = catalog.OpRemovePing
	Held             = catalog.OpHeld
	OldPings         = catalog.OpOldPings
	Prune            = catalog.OpPrune
	Prepare          = catalog.OpPrepare
	Hello            = catalog.OpHello
	Read             = catalog.OpRead
	Look             = catalog.OpSnapshots
	HeldOrFree       = catalog.OpHeldOrFree
	List             = catalog.OpList
	Waiting          = catalog.OpListWaited
	GrantStream      = catalog.OpGrantStream
	Notice           = catalog.OpNextGrants
	Transact         = catalog.OpTransact
	EnterTransaction = catalog.OpEnterTransaction
)

// A Call describes an operation that is not applied yet.
type Call struct {
	Op      Op
	Subject string // lock name or process id; empty if the operation has neither
}

// A Hook decides the outcome of a call. It carries out the operation by calling apply, at most
// once. The caller of the operation gets the hook's error, and gets a result only if that error is
// nil.
type Hook func(ctx context.Context, call Call, apply func() error) error

// Catalog passes every operation through a hook and counts it. It is safe for concurrent use.
type Catalog struct {
	catalog.Catalog

	mu      sync.Mutex // guards the rest
	hook    Hook
	counts  map[Op]int
	running int // hooks that have not returned
}

// Wrap returns a store that behaves like the given store until a hook is set.
func Wrap(inner catalog.Catalog) *Catalog {
	c := &Catalog{counts: map[Op]int{}}
	c.Catalog = catalog.Intercept(inner, c.do)
	return c
}

// Set sets the hook. A nil hook applies every operation.
func (c *Catalog) Set(h Hook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = h
}

// Count returns the number of calls of an operation.
func (c *Catalog) Count(op Op) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[op]
}

// Total returns the number of calls of all operations.
func (c *Catalog) Total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, count := range c.counts {
		n += count
	}
	return n
}

// Running returns the number of hooks that have not returned.
func (c *Catalog) Running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// do passes an operation through the hook. A listing passes once, not once for each row. The hook
// may apply the operation after the caller's context has ended, as a server carries out every
// command that it has received.
func (c *Catalog) do(ctx context.Context, call catalog.Call,
	run func(context.Context) error) error {
	if call.Row > 0 {
		return run(ctx)
	}
	return c.pass(ctx, Call{call.Op, strings.Join(call.Names, " ")}, run)
}

func (c *Catalog) pass(ctx context.Context, call Call, run func(context.Context) error) error {
	c.mu.Lock()
	c.counts[call.Op]++
	hook := c.hook
	c.mu.Unlock()
	if hook == nil {
		return run(ctx)
	}
	c.add(1)
	defer c.add(-1)
	sent := ctx.Err() == nil && call.Op != Notice
	return hook(ctx, call, func() error {
		at := ctx
		if sent && ctx.Err() != nil {
			at = context.WithoutCancel(ctx)
		}
		return run(at)
	})
}

func (c *Catalog) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running += n
}

// On returns a hook that leaves each call of op to the given function, which decides the outcome.
// The hook applies all other operations.
func On(op Op, do func(apply func() error) error) Hook {
	return func(_ context.Context, call Call, apply func() error) error {
		if call.Op == op {
			return do(apply)
		}
		return apply()
	}
}

// Refusing returns a hook that refuses the given operations.
func Refusing(ops ...Op) Hook {
	return func(_ context.Context, call Call, apply func() error) error {
		if slices.Contains(ops, call.Op) {
			return Refused(call.Op)
		}
		return apply()
	}
}

// Losing returns a hook that loses the replies to the given operations. The operations are applied.
func Losing(ops ...Op) Hook {
	return func(_ context.Context, call Call, apply func() error) error {
		err := apply()
		if slices.Contains(ops, call.Op) {
			return Lost(call.Op)
		}
		return err
	}
}

// Slow returns a hook that delays the given operations. The two durations are the delays of the
// command and of the reply.
func Slow(there, back time.Duration, ops ...Op) Hook {
	return func(_ context.Context, call Call, apply func() error) error {
		if !slices.Contains(ops, call.Op) {
			return apply()
		}
		clock.Sleep(clock.System(), there, nil)
		defer clock.Sleep(clock.System(), back, nil)
		return apply()
	}
}

// Lost returns the error of a command whose reply was lost. The command may have been applied.
func Lost(op Op) error {
	return fmt.Errorf("%s: reply lost on purpose: %w", op, catalog.ErrUnknownOutcome)
}

// Refused returns the error of a command that did not reach the server. It was not applied.
func Refused(op Op) error {
	return fmt.Errorf("%s: refused on purpose: %w", op, catalog.ErrUnavailable)
}
