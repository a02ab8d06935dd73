package simulation

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// This file is the part of the port that contenders in a line use.

func (o *port) enter(ctx context.Context, r catalog.Request, how catalog.EnterMode) (
	catalog.Lock, error) {
	if l, ok := o.wake(r); ok {
		return l, nil
	}
	r.Process = o.p.alias(r.Process)
	op := fault.Enter
	if how == catalog.TryPlain {
		op = fault.Acquire
	}
	c := o.write(op, r.Name, r.TS)
	c.request, c.how = r, how
	show := func(l catalog.Lock) string {
		if p, ok := l.HeldBy(r.TS); ok {
			return fmt.Sprintf("held, fence %d", p.Fence)
		}
		return fmt.Sprintf("waits, place %d of %d", placeOf(l, r.TS)+1, len(l.Waiters))
	}
	return sendFor(ctx, c, show, func() (catalog.Lock, error) {
		return o.store().Enter(background, r, how)
	})
}

func (o *port) leave(ctx context.Context, s catalog.Session) ([]catalog.Grant, error) {
	s.TS = o.p.snapshot.stored(s.TS)
	return sendFor(ctx, o.write(fault.Release, s.Name, s.TS), showGrants,
		func() ([]catalog.Grant, error) { return o.store().Leave(background, s) })
}

func (o *port) evict(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Grant, error) {
	c := o.write(fault.Evict, dead.Name, dead.TS)
	c.from = dead
	return sendFor(ctx, c, showGrants, func() ([]catalog.Grant, error) {
		return o.store().Evict(background, dead, evidence)
	})
}

func (o *port) grantNext(ctx context.Context, name string) ([]catalog.Grant, error) {
	return sendFor(ctx, o.write(fault.GrantNext, name, bson.ObjectID{}), showGrants,
		func() ([]catalog.Grant, error) { return o.store().GrantNext(background, name) })
}

// Snapshots implements [catalog.Queues].
func (o *port) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	c := o.read(fault.Look, strings.Join(names, " "))
	var old *picture
	c.old = func(at time.Duration, primary string) { old = &picture{at, primary} }
	show := func(looks map[string]catalog.Snapshot) string {
		var told []string
		for _, name := range names {
			told = append(told, o.p.w.log.look(looks[name]))
		}
		return strings.Join(told, "; ")
	}
	return sendFor(ctx, c, show, func() (map[string]catalog.Snapshot, error) {
		looks, err := o.store().attend(names, old)
		if o.p.w.s.NoServerTime {
			for name, l := range looks {
				l.ServerTime = time.Time{}
				looks[name] = l
			}
		}
		c.looks = looks
		return looks, err
	})
}

// WaitedUnder implements [catalog.Queues].
func (o *port) WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
	map[string]catalog.Snapshot, error) {
	show := func(looks map[string]catalog.Snapshot) string { return fmt.Sprintf("%d lines", len(looks)) }
	return sendFor(ctx, o.read(fault.WaitedUnder, ""), show, func() (map[string]catalog.Snapshot, error) {
		return o.store().WaitedUnder(background, processes, held)
	})
}

// heldOrFree is the result of HeldOrFree.
type heldOrFree struct {
	grants []catalog.Grant
	free   []string
}

// HeldOrFree implements [catalog.Queues].
func (o *port) HeldOrFree(ctx context.Context, process string, names []string) (
	[]catalog.Grant, []string, error) {
	process = o.p.alias(process)
	c := o.read(fault.HeldOrFree, strings.Join(names, " "))
	var old *picture
	c.old = func(at time.Duration, primary string) { old = &picture{at, primary} }
	show := func(a heldOrFree) string {
		return fmt.Sprintf("%s, %d free", showGrants(a.grants), len(a.free))
	}
	a, err := sendFor(ctx, c, show, func() (heldOrFree, error) {
		return o.store().heldOrFree(process, names, old), nil
	})
	return a.grants, a.free, err
}

// List implements [catalog.Operator]. To list those who wait is one command, sent when the rows are
// asked for; the whole list goes to the store unseen.
func (o *port) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	if !waited {
		return o.Catalog.List(ctx, false)
	}
	type row struct {
		catalog.Snapshot
		err error
	}
	return func(yield func(catalog.Snapshot, error) bool) {
		show := func(rows []row) string { return fmt.Sprintf("%d lines", len(rows)) }
		rows, err := sendFor(ctx, o.read(fault.Waiting, ""), show, func() ([]row, error) {
			var rows []row
			for h, err := range o.store().List(background, true) {
				rows = append(rows, row{h, err})
			}
			return rows, nil
		})
		if err != nil {
			yield(catalog.Snapshot{}, err)
			return
		}
		for _, r := range rows {
			if !yield(r.Snapshot, r.err) {
				return
			}
		}
	}
}

// GrantStream implements [catalog.Queues].
func (o *port) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	process = o.p.alias(process)
	if !o.p.w.s.Streams {
		return nil, fmt.Errorf("the stream of grants for %q: %w", process, catalog.ErrNoGrantStream)
	}
	s := newStream(o.p, process)
	return sendFor(ctx, o.read(fault.GrantStream, process), nil, func() (catalog.GrantStream, error) {
		o.store().open(s)
		return s, nil
	})
}

func showGrants(grants []catalog.Grant) string {
	if len(grants) == 0 {
		return "nobody is granted"
	}
	var told []string
	for _, a := range grants {
		told = append(told, fmt.Sprintf("%s is granted fence %d", a.Process, a.Fence))
	}
	return strings.Join(told, ", ")
}
