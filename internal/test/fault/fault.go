// Package fault puts a hook before every operation of a store, so that a test or a scheduler can
// count it, delay it, refuse it, apply it and lose the reply, or apply it late. It changes nothing
// by itself.
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

// The operations, by shorter names.
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
	catalog.Catalog

	mu     sync.Mutex // guards hook and counts
	hook   Hook
	counts map[Op]int
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

// do passes a call through the hook; of a listing, its first row. A hook may run it late in another
// goroutine: what a server has been sent it carries out whether or not the caller's context has
// ended meanwhile.
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
	sent := ctx.Err() == nil && call.Op != Notice
	return hook(ctx, call, func() error {
		at := ctx
		if sent && ctx.Err() != nil {
			at = context.WithoutCancel(ctx)
		}
		return run(at)
	})
}

// On is a hook for one operation: do decides what becomes of it, and all others are carried out.
func On(op Op, do func(apply func() error) error) Hook {
	return func(_ context.Context, call Call, apply func() error) error {
		if call.Op == op {
			return do(apply)
		}
		return apply()
	}
}

// Refusing is a hook that refuses some operations.
func Refusing(ops ...Op) Hook {
	return func(_ context.Context, call Call, apply func() error) error {
		if slices.Contains(ops, call.Op) {
			return Refused(call.Op)
		}
		return apply()
	}
}

// Lost says that a command was applied, or may have been, and its reply never came.
func Lost(op Op) error {
	return fmt.Errorf("%s: reply lost on purpose: %w", op, catalog.ErrUnknownOutcome)
}

// Refused says that the server could not be reached and nothing was applied.
func Refused(op Op) error {
	return fmt.Errorf("%s: refused on purpose: %w", op, catalog.ErrUnavailable)
}
