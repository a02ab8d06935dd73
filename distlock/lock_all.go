package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"mongodlm/internal/contend"
)

// Guards are the guards of locks acquired together. Safe for concurrent use.
type Guards struct{ guards []*TryGuard }

// LockAll acquires several locks, all or none, and waits for each as [DistributedLock.Lock] does,
// in the order of their names: so two LockAll cannot deadlock, but callers that hold other locks
// can. [WaitAtMost] bounds the whole. If one fails, the background gives back the others. Two
// thirds of a [Lease] are left at the end: LockAll renews it while it waits.
//
// Errors: Lock's, of the name that failed; [ErrBadOption] for no name or one twice.
func (m *Manager) LockAll(ctx context.Context, names []string, opts ...Option) (*Guards, error) {
	names = slices.Sorted(slices.Values(names))
	if err := checkNames(names); err != nil {
		return nil, err
	}
	o, err := newAcquireOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := usable(ctx); err != nil {
		return nil, fmt.Errorf("distlock: acquire %d locks: %w", len(names), err)
	}
	o.parent, o.began = ctx, m.cfg.Clock.Now().Mono
	fail := func(name string, err error) error {
		(&call{m: m, name: name, o: o}).notAcquired(EventGaveUp, err)
		return err
	}
	for _, name := range names {
		if err := m.standsInOwnWay(ctx, name, o); err != nil {
			return nil, fail(name, err)
		}
	}
	start := m.cfg.Clock.Now().Mono
	all := &Guards{}
	meanwhile, end := context.WithCancel(ctx)
	var waits sync.WaitGroup // of those that keep the leases meanwhile
	defer waits.Wait()
	defer end()
	for i, name := range names {
		if o.bounded && o.wait > 0 {
			left := o.wait - (m.cfg.Clock.Now().Mono - start)
			if left <= 0 {
				err := fail(name, &HeldError{Name: name, PingAge: -1, Reason: "the time was up before its turn"})
				all.giveBack() // after that was told, as where Lock tells it
				return nil, err
			}
			opts = append(slices.Clip(opts), WaitAtMost(left))
		}
		if o.says {
			opts = append(slices.Clip(opts), Holding(slices.Concat(o.holding, all.guards)...))
		}
		g, err := m.Lock(name).Lock(ctx, opts...)
		if err != nil {
			if errors.Is(err, ErrHeld) { // whoever is silent in the way of the others is watched meanwhile
				for _, other := range names[i+1:] {
					m.judge.Keep(contend.Scene{Name: other})
				}
			}
			all.giveBack()
			return nil, err
		}
		all.guards = append(all.guards, g)
		if o.life > 0 && len(all.guards) < len(names) {
			waits.Go(func() { g.h.keep(meanwhile) })
		}
		ctx = g.h.ctx // ends when any of them is lost, and says what this caller holds; all keeps the guards
	}
	if err := all.Err(); err != nil {
		all.giveBack()
		return nil, err
	}
	for _, g := range all.guards { // each lives under the one before it: who has one has all
		g.ctx = &guardContext{g.h.ctx, all}
	}
	return all, nil
}

// checkNames refuses what LockAll cannot acquire. The names are sorted.
func checkNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: LockAll was given no name", ErrBadOption)
	}
	for i, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if i > 0 && names[i-1] == name {
			return fmt.Errorf("%w: LockAll was given %s twice; name each lock once", ErrBadOption,
				quoted(name))
		}
	}
	return nil
}

// giveBack releases in the background what was acquired in vain.
func (g *Guards) giveBack() {
	go func() { _ = g.Release() }() // ends with its tries, at the latest with Close; they are logged
}

// All returns the guards in the order of their names.
func (g *Guards) All() []*TryGuard { return slices.Clone(g.guards) }

// Context returns a context that ends when any lock is lost or released.
func (g *Guards) Context() context.Context { return g.guards[len(g.guards)-1].Context() }

// Err returns nil while all guards may be trusted, else the first one's error.
func (g *Guards) Err() error {
	for _, one := range g.guards {
		if err := one.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release releases all of them, the last first and up to 16 side by side, and joins their errors.
// Nil Guards return nil.
func (g *Guards) Release() error {
	if g == nil {
		return nil
	}
	errs := make([]error, len(g.guards))
	sideBySide(len(errs), func(i int) { errs[i] = g.guards[len(errs)-1-i].Release() })
	return errors.Join(errs...)
}
