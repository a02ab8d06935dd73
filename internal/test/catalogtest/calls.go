package catalogtest

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// Changes contains the methods of a store that change documents.
type Changes interface {
	Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error)
	ApplyPing(ctx context.Context, c catalog.PingChange) error
}

// Lock is a parsed lock document.
type Lock = catalog.Lock

// HolderOf returns the holder of a lock in the form that an eviction needs.
func HolderOf(l catalog.Lock) catalog.Holder {
	return catalog.Holder{Session: l.Session(), Process: l.Process}
}

// Calls wraps a store and adds a method for each transition and for each change of a ping.
type Calls struct{ Changes }

// On wraps a store in Calls.
func On(store Changes) Calls { return Calls{store} }

func (c Calls) lock(ctx context.Context, t catalog.Transition) (catalog.Lock, error) {
	l, _, err := c.Apply(ctx, t)
	return l, err
}

func (c Calls) grants(ctx context.Context, t catalog.Transition) ([]catalog.Grant, error) {
	_, grants, err := c.Apply(ctx, t)
	return grants, err
}

func (c Calls) only(ctx context.Context, t catalog.Transition) error {
	_, _, err := c.Apply(ctx, t)
	return err
}

func (c Calls) Enter(ctx context.Context, r catalog.Request, how catalog.EnterMode) (Lock, error) {
	return c.lock(ctx, transition.Enter{Request: r, How: how})
}

// Acquire calls Enter in the mode [catalog.TryPlain].
func (c Calls) Acquire(ctx context.Context, r catalog.Request) (Lock, error) {
	return c.Enter(ctx, r, catalog.TryPlain)
}

func (c Calls) Confirm(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	return c.lock(ctx, transition.Confirm{Request: r})
}

func (c Calls) SeedFence(ctx context.Context, s catalog.Session, atLeast int64) (Lock, error) {
	return c.lock(ctx, transition.SeedFence{Session: s, AtLeast: atLeast})
}

// TakeOver evicts a holder, and then acquires the lock.
func (c Calls) TakeOver(ctx context.Context, r catalog.Request, from catalog.Holder) (Lock, error) {
	if _, err := c.Evict(ctx, from, "silent"); err != nil {
		return Lock{}, err
	}
	return c.Acquire(ctx, r)
}

func (c Calls) Break(
	ctx context.Context, s catalog.Session, fence int64, why string,
) (Lock, error) {
	return c.lock(ctx, transition.Break{Session: s, Fence: fence, Why: why})
}

func (c Calls) Leave(ctx context.Context, s catalog.Session) ([]catalog.Grant, error) {
	return c.grants(ctx, transition.Leave{Session: s})
}

func (c Calls) Evict(ctx context.Context, h catalog.Holder, why string) ([]catalog.Grant, error) {
	return c.grants(ctx, transition.Evict{Holder: h, Evidence: why})
}

func (c Calls) GrantNext(ctx context.Context, name string) ([]catalog.Grant, error) {
	return c.grants(ctx, transition.GrantNext{Name: name})
}

func (c Calls) Renew(ctx context.Context, r catalog.Renewal) error {
	return c.only(ctx, transition.Renew{Renewal: r})
}

func (c Calls) PutFirst(ctx context.Context, s catalog.Session, to bson.ObjectID) error {
	return c.only(ctx, transition.PutFirst{Session: s, To: to})
}

func (c Calls) RequestYield(ctx context.Context, name, by, why string) error {
	return c.only(ctx, transition.RequestYield{Name: name, By: by, Why: why})
}

func (c Calls) Condemn(
	ctx context.Context, id string, watched *catalog.Ping, how catalog.Condemnation,
) error {
	return c.ApplyPing(ctx, transition.Condemn{Process: id, Watched: watched, How: how})
}

func (c Calls) Witness(ctx context.Context, watched catalog.Ping, s catalog.Sight) error {
	return c.ApplyPing(ctx, transition.Witness{Watched: watched, Sight: s})
}

func (c Calls) RemovePing(ctx context.Context, process string) error {
	return c.ApplyPing(ctx, transition.RemovePing{Process: process})
}
