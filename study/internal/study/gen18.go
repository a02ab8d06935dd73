package study

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// gen18 is the lock of mongos 1.5.5 to 1.8 (2010-2011). Each process has one gen18. Numbers such as
// :185 are lines of r1.8.5 client/distlock.cpp, unless another release is named. Holes such as H1
// are known weaknesses, see docs/semantics.md. gen18 omits the assertion of r1.6.0:113 that a
// thread does not lock twice.
type gen18 struct {
	p       *process
	release release
	id      string // :39, H15: no port; the last part is a constant, as rand() was not seeded
}

const (
	ping18  = 30 * time.Second // :126
	poll18  = 30 * time.Second // of the balancer, r1.8.5 s/balance.cpp:303
	tries18 = 3                // :313
)

func newGen18(p *process, r release) manager {
	return &gen18{p: p, release: r,
		id: fmt.Sprintf("%s:%d:1804289383", p.host, p.now().Add(-p.w.Now()).Unix())}
}

// at returns the step that imitates a line of the source of mongos 1.8.5. In a simulation of a
// version before 1.7.6, it imitates the other line, of 1.6.5, if that is not 0.
func (g *gen18) at(r185, r165 int) line {
	if r165 > 0 && !g.release.since(1, 7, 6) {
		return line{g.p, "r1.6.5 client/distlock.cpp:" + strconv.Itoa(r165)}
	}
	return line{g.p, fileOf["1.8"] + ":" + strconv.Itoa(r185)}
}

// start begins to ping in a goroutine, like the ping thread of distlock.cpp:62. It does not wait
// for the first ping (hole H12).
func (g *gen18) start() {
	g.p.Go(func() {
		for {
			_ = g.ping()
			g.p.sleep(ping18) // also after an error
		}
	})
}

func (g *gen18) ping() error {
	err := g.at(77, 58).ping(g.id) // with the time of its own clock (H5)
	if err != nil {
		return err
	}
	var all []document
	if g.release.since(1, 7, 3) { // held or not; older releases prune all silent processes, r1.6.5:66
		if all, err = g.at(94, 0).find(Clean, locks, nil); err != nil {
			return err
		}
	}
	return g.at(104, 68).prune(all) // :103: four days by its own clock (H13)
}

// lock calls tryLock at the interval of the balancer (poll18), for at most the given patience.
func (g *gen18) lock(name string, patience time.Duration) (*held, error) {
	return again(g.p, patience, cmp.Or(g.p.pace, poll18),
		func() (*held, error) { return g.tryLock(name) })
}

// tryLock imitates lock_try, distlock.cpp:171.
func (g *gen18) tryLock(name string) (*held, error) {
	match := append(byID(name), free...)
	d, err := g.at(185, 121).findOne(Read, locks, name)
	if err != nil {
		return nil, err
	}
	switch {
	case d == nil: // :189: a failure is ignored
		_ = g.at(189, 124).insert(document(match).with(pairs("who", "")))
	case d.state() > 0: // :196
		if err := g.force(d); err != nil {
			return nil, err
		}
	case d.value("ts") != nil: // :246: matches only the version that was read
		match = append(match, pairs("ts", d.id("ts"))...)
	}
	ts := g.p.w.objectID(g.p)
	set := pairs("state", int32(1), "who", g.id+":conn1:846930886", "process", g.id,
		"when", date(g.p.now()), "why", "work", "ts", ts)
	n, err := g.at(263, 165).update(Grab, locks, match, set, false)
	if err == nil {
		_, err = g.at(266, 168).findOne(Reread, locks, name) // reads before it checks n
	}
	if err != nil {
		return nil, err // :279 does not catch this exception, and the changes remain (H11)
	}
	if n == 0 {
		return nil, errHeld // :268
	}
	return heldOld(g.id, ts, nothing, func() error { return g.unlock(name) }), nil
}

// force imitates the check of a held lock, distlock.cpp:197. It returns nil if it has freed the
// lock.
func (g *gen18) force(d document) error {
	ping, err := g.at(197, 130).findOne(Read, pings, d.text("process"))
	if err != nil {
		return err
	}
	if ping == nil {
		g.at(206, 135).note("no ping of %s: a person must act", owner(d.text("process")))
		return errHeld // forever, until a person acts
	}
	now := date(g.p.now()) // :209: compares its own clock with the holder's
	if now < ping.ping() && g.release.since(1, 8, 0) {
		g.at(212, 0).note("clock skew of %s", Span(time.Duration(ping.ping()-now)*time.Millisecond))
		return errHeld
	}
	limit := uint64(15) // minutes are truncated before the comparison: in effect 16
	if !g.release.since(1, 7, 6) {
		limit = 10 // r1.7.5 client/distlock.h:47
	}
	if t := g.p.w.takeover; t > 0 {
		limit = uint64(t / time.Minute)
	}
	// The difference is unsigned (r1.6.5:138). If the ping is in the future, the difference is
	// therefore very large.
	minutes := uint64(now-ping.ping()) / 60000
	if minutes <= limit {
		g.at(227, 141).note("%d min since the ping <= %d", minutes, limit)
		return errHeld
	}
	g.at(227, 141).note("%d min since the ping > %d: forces", minutes, limit)
	// The update matches only the _id, so it frees the lock of any holder (hole H1). mongos does not
	// check whether a document matched (hole H22).
	_, err = g.at(235, 148).update(Take, locks, byID(d.text("_id")), free, false)
	return err
}

// unlock imitates unlock, distlock.cpp:312. The lock object of mongos does not record that the lock
// is acquired (hole H23).
func (g *gen18) unlock(name string) error {
	var err error
	for pause := 2 * time.Second; pause <= 1<<tries18*time.Second; pause *= 2 {
		// The update matches only the _id, so it frees the lock of any holder (hole H2). After a lost
		// reply the update is repeated (hole H3).
		_, err = g.at(319, 220).update(Release, locks, byID(name), free, false)
		if err == nil {
			_, err = g.at(320, 221).findOne(Reread, locks, name) // for the log; but a failure counts (H4)
		}
		if err == nil || !g.release.since(1, 6, 1) { // r1.6.0:217: once; the exception escapes
			return err
		}
		g.p.sleep(pause) // :331: after the last failure, too
	}
	return err // :335: there is no further attempt (H10)
}
