package memcatalog

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// Apply is documented in [catalog.Locks].
func (c *Catalog) Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error) {
	verb, name := transition.Of(t), t.On()
	enter, makes := t.(transition.Enter)
	err := ctx.Err()
	if err == nil && makes {
		err = enter.Check()
	}
	if err != nil {
		return catalog.Lock{}, nil, failed(verb, name, err)
	}
	now := serverDate(c.now())
	if s, ok := transition.Under(t); ok {
		if in, _ := catalog.TransactionUnder(ctx, s).(*Transaction); in != nil {
			return catalog.Lock{}, nil, c.applyIn(in, t, now)
		}
	}
	if err := c.forWrite(ctx, name); err != nil {
		return catalog.Lock{}, nil, failed(verb, name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(name)])
	if doc == nil && makes { // As an upsert does: what the filter says equals comes first.
		doc = fields{{"_id", text(name)}, {"state", int32Of(0)}}
	}
	change, err := c.decide(doc, t, now)
	if err != nil {
		return catalog.Lock{}, nil, failed(verb, name, err)
	}
	if change.Nothing() {
		l, _ := catalog.ParseLock(doc.raw())
		return l, nil, nil
	}
	l, err := c.turn(verb, name, doc, change)
	if err == nil && makes && enter.How != catalog.TryPlain && l.HeldAs(enter.TS, enter.Process) && l.Fence < transition.Seeded {
		// A fence that was counted up from nothing is raised to the clock by a second write, as a
		// server's plain update has to.
		seed := transition.SeedFence{Session: enter.Session, AtLeast: l.When.UnixMilli()}
		if change, err := seed.Next(l, now); err == nil {
			l, err = c.turn(verb, name, take(c.locks[stringKey(name)]), change)
			return l, nil, err
		}
	}
	return l, change.Grants, err
}

// decide returns the change that a transition makes of a document, nil for none. The caller holds
// mu.
func (c *Catalog) decide(doc fields, t catalog.Transition, now time.Time) (change catalog.Change, err error) {
	if doc == nil {
		return change, catalog.ErrNoMatch
	}
	raw := doc.raw()
	l, bad := catalog.ParseLock(raw)
	switch t := t.(type) {
	case transition.Enter:
		plain := t.How == catalog.TryPlain
		if plain && bad != nil {
			return change, catalog.ErrNotFree
		}
		if plain || bad == nil && t.Mode == catalog.Exclusive && t.How != catalog.Queue && t.Since.IsZero() {
			if change, err = t.Acquire(l, shared(doc), now); err == nil || plain {
				return change, err
			}
		}
	case transition.Leave:
		if bad != nil {
			return transition.LeaveDamaged(raw, t.TS, bad)
		}
		if heldBy(doc, t.Session) && len(l.Waiters) == 0 && !shared(doc) {
			change.Set = bson.D{{Key: "state", Value: int32(0)}}
			return change, nil
		}
	case transition.Break:
		ts := c.newID()
		if t.TS.IsZero() { // whatever is wrong with it, it is to go
			l, bad = catalog.ParseLock(doc.with("ts", objectIDOf(ts)).raw())
		}
		if bad == nil {
			return t.Free(l, shared(doc), ts)
		}
	}
	if bad != nil {
		return change, bad
	}
	return t.Next(l, now)
}

func (c *Catalog) lookAt(name string) catalog.Snapshot {
	look := catalog.Snapshot{ServerTime: serverDate(c.now()), Primary: c.primary}
	raw := c.locks[stringKey(name)]
	if raw == nil {
		return look
	}
	l, bad := catalog.ParseLock(raw)
	if look.LockErr = bad; bad != nil {
		return look
	}
	look.Lock = &l
	look.Pings = c.pulses(l)
	look.Ping, look.PingErr = parsePing(l.Process, c.pings[stringKey(l.Process)])
	return look
}

// Read is documented in [catalog.Locks].
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	const verb = "read"
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	c.mu.Lock()
	raw := c.locks[stringKey(name)]
	c.mu.Unlock()
	if raw == nil {
		return catalog.Lock{}, failed(verb, name, catalog.ErrNotFound)
	}
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		return catalog.Lock{}, failed(verb, name, bad)
	}
	return l, nil
}

// heldBy is the filter {ts, state: {$gt: 0}}.
func heldBy(doc fields, s catalog.Session) bool {
	return holds(doc.get("ts"), equals(objectIDOf(s.TS))) && holds(doc.get("state"), positive)
}

// parsePing understands the ping document of a process; nothing when the process has no name or
// the document is missing.
func parsePing(process string, raw bson.Raw) (*catalog.Ping, *catalog.MalformedError) {
	if process == "" || raw == nil {
		return nil, nil
	}
	p, bad := catalog.ParsePing(raw)
	if bad != nil {
		return nil, bad
	}
	return &p, nil
}

func failed(verb, name string, err error) error { return fmt.Errorf("%s %q: %w", verb, name, err) }
