package memcatalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

// Enter is documented in [catalog.Queues].
func (c *Catalog) Enter(ctx context.Context, g catalog.Request, how catalog.EnterMode) (
	catalog.Lock, error,
) {
	const verb = "enter"
	if err := cmp.Or(ctx.Err(), g.Check()); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	if how == catalog.Claim {
		return c.claim(ctx, g)
	}
	now := serverDate(c.now())
	if err := c.forWrite(ctx, g.Name); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(g.Name)])
	l := catalog.Lock{Name: g.Name}
	if doc == nil {
		doc = fields{{"_id", text(g.Name)}, {"state", int32Of(0)}}
	} else {
		var bad *catalog.MalformedError
		if l, bad = catalog.ParseLock(doc.raw()); bad != nil {
			return catalog.Lock{}, failed(verb, g.Name, bad)
		}
	}
	if g.Mode == catalog.Exclusive && how != catalog.Queue {
		if change, err := queue.Acquire(l, shared(doc), g, now); err == nil {
			return c.takePlainly(verb, g, doc, change)
		}
	}
	change, changed, err := queue.Enter(l, g, how, now)
	switch {
	case err != nil:
		return catalog.Lock{}, failed(verb, g.Name, err)
	case !changed:
		return l, nil
	}
	return c.turn(verb, g.Name, doc, change)
}

// takePlainly carries out a plain acquisition. A fence that was counted up from nothing is raised to the clock by
// a second write, as a server's plain update has to. The caller holds mu.
func (c *Catalog) takePlainly(verb string, g catalog.Request, doc fields, change queue.Change) (catalog.Lock, error) {
	l, err := c.turn(verb, g.Name, doc, change)
	if err != nil || l.Fence >= queue.Seeded {
		return l, err
	}
	if change, err = queue.SeedFence(l, g.Session, l.When.UnixMilli()); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	return c.turn(verb, g.Name, take(c.locks[stringKey(g.Name)]), change)
}

// Leave is documented in [catalog.Queues].
func (c *Catalog) Leave(ctx context.Context, s catalog.Session) ([]catalog.Grant, error) {
	const verb = "leave"
	if err := ctx.Err(); err != nil {
		return nil, failed(verb, s.Name, err)
	}
	now := serverDate(c.now())
	if err := c.forWrite(ctx, s.Name); err != nil {
		return nil, failed(verb, s.Name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(s.Name)])
	if doc == nil {
		return nil, failed(verb, s.Name, catalog.ErrNoMatch)
	}
	raw := doc.raw()
	l, bad := catalog.ParseLock(raw)
	var change queue.Change
	var err error
	switch {
	case bad != nil:
		change, err = queue.LeaveDamaged(raw, s.TS, bad)
	case heldBy(doc, s) && len(l.Waiters) == 0 && !shared(doc):
		change.Set = bson.D{{Key: "state", Value: int32(0)}}
	default:
		change, err = queue.Leave(l, s.TS, now, "")
	}
	if err != nil {
		return nil, failed(verb, s.Name, err)
	}
	_, err = c.turn(verb, s.Name, doc, change)
	return change.Awards, err
}

// Evict is documented in [catalog.Queues].
func (c *Catalog) Evict(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Grant, error,
) {
	const verb = "bury"
	now := serverDate(c.now())
	return c.change(ctx, verb, dead.Name, func(l catalog.Lock) (queue.Change, error) {
		return queue.Evict(l, dead, now, evidence)
	})
}

// GrantNext is documented in [catalog.Queues].
func (c *Catalog) GrantNext(ctx context.Context, name string) ([]catalog.Grant, error) {
	now := serverDate(c.now())
	return c.change(ctx, "settle", name, func(l catalog.Lock) (queue.Change, error) {
		return queue.GrantNext(l, now)
	})
}

// change is revise that tells whom it granted the lock.
func (c *Catalog) change(ctx context.Context, verb, name string,
	transition func(catalog.Lock) (queue.Change, error)) ([]catalog.Grant, error) {
	var awards []catalog.Grant
	_, err := c.revise(ctx, verb, name, func(l catalog.Lock) (queue.Change, error) {
		change, err := transition(l)
		awards = change.Awards
		return change, err
	})
	return awards, err
}

// revise carries out a transition on a document that must be there and be understood.
func (c *Catalog) revise(ctx context.Context, verb, name string,
	transition func(catalog.Lock) (queue.Change, error)) (catalog.Lock, error) {
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	if err := c.forWrite(ctx, name); err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(name)])
	change, err := decide(doc, transition)
	if err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	return c.turn(verb, name, doc, change)
}

// decide returns the change that a transition makes of a document.
func decide(doc fields, transition func(catalog.Lock) (queue.Change, error)) (queue.Change, error) {
	if doc == nil {
		return queue.Change{}, catalog.ErrNoMatch
	}
	l, bad := catalog.ParseLock(doc.raw())
	if bad != nil {
		return queue.Change{}, bad
	}
	return transition(l)
}

// turn writes a change of the queue and tells whom it granted the lock. The caller holds mu.
func (c *Catalog) turn(verb, name string, doc fields, change queue.Change) (catalog.Lock, error) {
	changes, err := edits(doc, change)
	if err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	raw, bad := doc.apply(catalog.LocksCollection, changes...)
	if bad != nil {
		return catalog.Lock{}, failed(verb, name, bad)
	}
	l, _ := c.putLock(stringKey(name), raw) // malformed when its fence came to an end: nobody has it
	c.tell(change.Awards)
	return l, nil
}

// edits are a change of the queue, with rev.
func edits(doc fields, change queue.Change) ([]edit, error) {
	var changes []edit
	if next, ok := change.NextRev(doc.get("rev")); ok {
		changes = append(changes, set("rev", int64Of(next)))
	}
	for _, e := range change.Set {
		t, value, err := bson.MarshalValue(e.Value)
		if err != nil {
			return nil, err
		}
		changes = append(changes, set(e.Key, bson.RawValue{Type: t, Value: value}))
	}
	for _, key := range change.Unset {
		changes = append(changes, unset(key))
	}
	return changes, nil
}

// Snapshots is documented in [catalog.Queues]. All is of one instant.
func (c *Catalog) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := make(map[string]catalog.Snapshot, len(names))
	for _, name := range names {
		if c.locks[stringKey(name)] != nil {
			looks[name] = c.lookAt(name)
		}
	}
	return looks, nil
}

// WaitedUnder is documented in [catalog.Queues]. All is of one instant, and of the locks for which the processes
// wait only those are read that are asked for.
func (c *Catalog) WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
	map[string]catalog.Snapshot, error,
) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("waited under: %w", err)
	}
	asked := make(map[bson.ObjectID]bool, len(held))
	for _, ts := range held {
		asked[ts] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := map[string]catalog.Snapshot{}
	for _, process := range processes {
		of := c.standing.of[process]
		if of == nil {
			continue
		}
		for s, holds := range of.waits {
			if slices.ContainsFunc(holds, func(ts bson.ObjectID) bool { return asked[ts] }) {
				looks[s.Name] = c.lookAt(s.Name)
			}
		}
	}
	return looks, nil
}

// HeldOrFree is documented in [catalog.Queues].
func (c *Catalog) HeldOrFree(ctx context.Context, process string, names []string) (
	awards []catalog.Grant, free []string, err error,
) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("ask for awards: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		raw := c.locks[stringKey(name)]
		l, bad := catalog.ParseLock(raw)
		if raw == nil || bad != nil {
			continue
		}
		if !l.Held {
			free = append(free, name)
		}
		awards = append(awards, l.GrantsOf(process)...)
	}
	return awards, free, nil
}

// pulses are the pings of all holders and waiters. The caller holds mu.
func (c *Catalog) pulses(l catalog.Lock) map[string]catalog.PingState {
	parties := slices.Concat(l.Holders(), l.Waiters)
	if len(parties) == 0 {
		return nil
	}
	pulses := make(map[string]catalog.PingState, len(parties))
	for _, p := range parties {
		ping, bad := parsePing(p.Process, c.pings[stringKey(p.Process)])
		pulses[p.Process] = catalog.PingState{Ping: ping, Err: bad}
	}
	return pulses
}

// awaited is the filter {"waiters.process": {$exists: true}}.
func awaited(doc fields) bool {
	line := doc.get("waiters")
	named := func(v bson.RawValue) bool {
		party, ok := v.DocumentOK()
		return ok && party.Lookup("process").Type != 0
	}
	list, ok := line.ArrayOK()
	if !ok {
		return named(line)
	}
	values, err := list.Values()
	return err == nil && slices.ContainsFunc(values, named)
}

// shared is the filter {"sharers.0": {$exists: true}}: somebody shares the lock, or a manager that knows
// nothing of sharers left them there.
func shared(doc fields) bool {
	v := doc.get("sharers")
	list, ok := v.ArrayOK()
	if !ok {
		doc, isDocument := v.DocumentOK()
		return isDocument && doc.Lookup("0").Type != 0
	}
	values, err := list.Values()
	return err == nil && len(values) > 0
}

// errStreamOver is what Next says when the stream was ended by the store.
var errStreamOver = errors.New("the stream of notices is over")

// A stream tells one process what is granted to it.
type stream struct {
	c       *Catalog
	process string
	wake    chan struct{}
	pending []catalog.Grant // guarded by c.mu
	over    bool            // guarded by c.mu
}

// GrantStream is documented in [catalog.Queues].
func (c *Catalog) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("open notices for", process, err)
	}
	s := &stream{c: c, process: process, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[s] = true
	return s, nil
}

// BreakStreams ends every open stream of notices, as an election or an invalidation would.
func (c *Catalog) BreakStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.streams {
		s.over = true
		s.signal()
		delete(c.streams, s)
	}
}

// tell passes awards on to the streams of their processes. The caller holds mu.
func (c *Catalog) tell(awards []catalog.Grant) {
	for s := range c.streams {
		for _, a := range awards {
			if a.Process == s.process {
				s.pending = append(s.pending, a)
				s.signal()
			}
		}
	}
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// Next is documented in [catalog.GrantStream].
func (s *stream) Next(ctx context.Context) ([]catalog.Grant, error) {
	for {
		s.c.mu.Lock()
		awards, over := s.pending, s.over
		s.pending = nil
		s.c.mu.Unlock()
		switch {
		case len(awards) > 0:
			return awards, nil
		case over:
			return nil, failed("notices for", s.process, errStreamOver)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, failed("notices for", s.process, ctx.Err())
		}
	}
}

// Close is documented in [catalog.GrantStream].
func (s *stream) Close(context.Context) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.over, s.pending = true, nil
	s.signal()
	delete(s.c.streams, s)
}
