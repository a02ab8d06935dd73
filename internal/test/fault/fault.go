// Package fault calls a hook before every operation of a store. The hook can count the operation,
// delay it, refuse it, apply it and lose the reply, or apply it late. Without a hook the store is
// unchanged.
package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"mongodlm/catalog"
)

// An Op names an operation of a catalog.
type Op = catalog.Op

// These are the operations of a catalog, under shorter names.
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
	RequestYield     = catalog.OpRequestYield
	Break            = catalog.OpBreak
	Ping             = catalog.OpPing
	Condemn          = catalog.OpCondemn
	Witness          = catalog.OpWitness
	RemovePing       = catalog.OpRemovePing
	Held             = catalog.OpHeld
	OldPings         = catalog.OpOldPings
	Prune            = catalog.OpPrune
	PruneLocks       = catalog.OpPruneLocks
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

// A Call describes an operation before it is applied.
type Call struct {
	Op      Op
	Subject string // lock name or process id; empty if the operation has neither
}

// A Hook decides the outcome of a call. The function apply carries out the operation, and may be
// called at most once. The caller gets the error of the hook, and no result if there is an error.
type Hook func(ctx context.Context, call Call, apply func() error) error

// Catalog passes every operation through a hook and counts it. It is safe for concurrent use.
type Catalog struct {
	catalog.Catalog

	mu      sync.Mutex // guards the rest
	hook    Hook
	counts  map[Op]int
	running int // hooks that have not returned
}

// Wrap returns a store that behaves as inner until a hook is set.
func Wrap(inner catalog.Catalog) *Catalog {
	c := &Catalog{counts: map[Op]int{}}
	c.Catalog = catalog.Intercept(inner, c.do)
	return c
}

// Set sets the hook; nil removes it.
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

// The method do passes a call through the hook. A listing passes only once, not with each row. A
// hook may apply the call after the caller's context has ended, because a server carries out every
// command that was sent.
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

// On returns a hook that applies all operations except op. For op it calls the function do, which
// decides the outcome.
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

// Lost returns the error of a command with a lost reply. The command may have been applied.
func Lost(op Op) error {
	return fmt.Errorf("%s: reply lost on purpose: %w", op, catalog.ErrUnknownOutcome)
}

// Refused returns the error of a command that did not reach the server. It was not applied.
func Refused(op Op) error {
	return fmt.Errorf("%s: refused on purpose: %w", op, catalog.ErrUnavailable)
}
