package study

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// gen20 is the lock of mongos 2.0 to 3.0 (2011-2015), one per process, with what all locks of the
// process share since 2.0.1. Numbers such as 2.9 and D are those of the notes on its source.
//
// Not played: several mirrored config servers, so neither the tournament (E) nor the comparison of
// the servers' clocks (2.7), which is always content with one server; re-entry, which nothing used.
type gen20 struct {
	p     *process
	id    string // 2.3: with the port
	pings bool   // the thread runs
	queue []bson.ObjectID
	seen  map[string]seen20 // 2.8: by lock name
}

// seen20 is what a contender remembers of a lock that was held.
type seen20 struct {
	process string
	ping    bson.DateTime
	remote  time.Time
	ts      bson.ObjectID
}

// The constants of 2.2.
const (
	timeout20 = 15 * time.Minute
	skew20    = 30
	ping20    = timeout20 / skew20
	keep20    = 4 * 24 * time.Hour
	poll20    = time.Second
	tries20   = 3
)

// The states of 2.1.
const (
	prepared int32 = 1
	held     int32 = 2
)

func newGen20(p *process) manager {
	return &gen20{p: p, seen: map[string]seen20{},
		id: fmt.Sprintf("%s:27017:%d:%d", p.host, p.now().Add(-p.w.Now()).Unix(), 424238335+p.Index)}
}

// start does nothing: since 2.0 the pings begin with the first lock_try, 2.5. Here that is the
// start.
func (g *gen20) start() bool {
	if !g.pings {
		g.pings = true
		g.p.Go(g.pingLoop)
	}
	return true
}

// pingLoop is 2.5.
func (g *gen20) pingLoop() {
	for {
		if err := g.ping(); errors.Is(err, errThread) {
			g.p.w.record.mark(g.p, "trouble", "its ping thread ends")
			return // known to the registry, so never started again (2.5 step 2)
		}
		g.p.sleep(ping20)
	}
}

func (g *gen20) ping() error {
	// Step 2: its own clock, but the value only has to change.
	_, err := g.p.update(Ping, pings, bson.D{{Key: "_id", Value: g.id}},
		bson.D{{Key: "ping", Value: date(g.p.now())}}, true)
	if err != nil {
		return err
	}
	all, err := g.p.find(Clean, locks, nil) // step 3: those that are held
	if err != nil {
		return err
	}
	var named []string
	for _, d := range all {
		if d.state() > 0 {
			named = append(named, d.text("process"))
		}
	}
	before := date(g.p.now().Add(-keep20)) // step 4
	err = g.p.remove(Clean, pings, "{_id: not named by a lock, ping: before "+
		before.Time().UTC().Format(time.DateOnly)+"}", func(d document) bool {
		return !slices.Contains(named, d.text("_id")) && d.ping() < before
	})
	if err != nil {
		return err
	}
	for len(g.queue) > 0 { // step 7: the late unlocks
		if _, err := g.p.update(Release, locks, bson.D{{Key: "ts", Value: g.queue[0]}},
			bson.D{{Key: "state", Value: int32(0)}}, false); err != nil {
			return err
		}
		g.queue = g.queue[1:]
	}
	return nil
}

// lock is ScopedDistributedLock's acquire, 2.12: again after 1 s, until patience is over.
func (g *gen20) lock(name string, patience time.Duration) (tenure, error) {
	return again(g.p, patience, poll20, func() (tenure, error) { return g.tryLock(name) })
}

// tryLock is lock_try, 2.9.
func (g *gen20) tryLock(name string) (tenure, error) {
	match := bson.D{{Key: "_id", Value: name}, {Key: "state", Value: int32(0)}}
	d, err := g.p.findOne(locks, name) // B
	if err != nil {
		return nil, err
	}
	switch {
	case d == nil: // case 1, with a ts of zeros since 2.4.12
		_ = g.p.insert(Read, locks, document(match).with(bson.D{
			{Key: "who", Value: ""}, {Key: "ts", Value: bson.ObjectID{}}}))
	case d.state() > 0: // case 2
		if err := g.force(d); err != nil {
			return nil, err
		}
	default: // case 3
		match = append(match, bson.E{Key: "ts", Value: d.id("ts")})
	}
	delete(g.seen, name) // C
	ts := g.p.w.objectID(g.p)
	set := bson.D{ // D
		{Key: "state", Value: prepared}, {Key: "who", Value: g.id + ":conn1:719885386"},
		{Key: "process", Value: g.id}, {Key: "when", Value: date(g.p.now())},
		{Key: "why", Value: "work"}, {Key: "ts", Value: ts},
	}
	n, err := g.p.update(Grab, locks, match, set, false)
	if err != nil {
		return nil, err // 13663; nothing is queued
	}
	if n < 1 {
		return nil, errHeld
	}
	set[0].Value = held // F: by _id alone (G2-1)
	n, err = g.p.update(Finalize, locks, match[:1], set, false)
	if err != nil {
		g.queue = append(g.queue, ts) // 13662
		return nil, err
	}
	if n < 1 {
		return nil, errHeld
	}
	return &held20{g, name, ts}, nil
}

// force is the examination of a lock that is held, 2.10. Without an error the lock is free now.
func (g *gen20) force(d document) error {
	name := d.text("_id")
	ping, err := g.p.findOne(pings, d.text("process")) // 3: none counts as 0
	if err != nil {
		return err
	}
	remote, _, err := g.p.serverStatus() // 4: the clock of the first config server
	if err != nil {
		delete(g.seen, name)
		return errHeld
	}
	now, was := seen20{d.text("process"), ping.ping(), remote, d.id("ts")}, g.seen[name]
	// 5: of a lock that is being prepared the ping does not count (G2-9).
	changed := was.remote.IsZero() || was.ts != now.ts ||
		d.state() == held && (was.process != now.process || was.ping != now.ping)
	if changed {
		g.seen[name] = now
		return errHeld
	}
	if remote.Sub(was.remote) <= timeout20 { // 6; a clock that went back counts 0
		return errHeld
	}
	delete(g.seen, name) // 8: the force names state and ts, and n is looked at
	n, err := g.p.update(Take, locks, bson.D{{Key: "_id", Value: name}, {Key: "state", Value: d.state()},
		{Key: "ts", Value: now.ts}}, bson.D{{Key: "state", Value: int32(0)}}, false)
	if err != nil {
		return err // 13660
	}
	if n < 1 {
		return errHeld
	}
	return nil
}

func (g *gen20) close() {} // 4: the ping is left behind

// held20 is a lock that was got.
type held20 struct {
	g    *gen20
	name string
	ts   bson.ObjectID
}

func (h *held20) session() string { return h.g.id + " " + h.ts.Hex() }
func (h *held20) fence() int64    { return 0 } // G2-11
func (h *held20) trusted() error  { return nil }
func (h *held20) proceed() error  { return nil }

// check is isLockHeld, 2.12: state and process, and not ts.
func (h *held20) check() error {
	d, err := h.g.p.findOne(locks, h.name)
	switch {
	case err != nil:
		return err
	case d.state() < held, d.text("process") != h.g.id, slices.Contains(h.g.queue, h.ts):
		return errLost
	}
	return nil
}

// release is unlock with the document that lock_try returned, 2.11.
func (h *held20) release() error {
	pause := 2 * time.Second
	var err error
	for try := range tries20 {
		var n int
		n, err = h.g.p.update(Release, locks, bson.D{{Key: "_id", Value: h.name}, {Key: "ts", Value: h.ts}},
			bson.D{{Key: "state", Value: int32(0)}}, false)
		if err == nil && n > 0 {
			return nil
		}
		if err != nil && try < tries20-1 {
			h.g.p.sleep(pause)
			pause *= 2
		}
	}
	h.g.queue = append(h.g.queue, h.ts)
	return err
}
