package main

import (
	"cmp"
	"fmt"
	"time"
)

// gen18 is the lock of mongos 1.7.6 to 1.8 (2010-2011). Each process has one gen18. A number such
// as :185 is a line of r1.8.5 client/distlock.cpp, unless another release is named. A hole, such as
// H1, is a known weakness in docs/semantics.md. mongos asserts that a thread does not lock twice
// (r1.6.0:113), and gen18 does not.
type gen18 struct{ old }

const (
	ping18  = 30 * time.Second // :126
	poll18  = 30 * time.Second // of the balancer, r1.8.5 s/balance.cpp:303
	tries18 = 3                // :313
)

// newGen18 returns a manager whose process id (:39) has no port and no random number, because
// mongos never seeds rand() (hole H15).
func newGen18(p *process, _ string) manager {
	return &gen18{old{p: p, id: fmt.Sprintf("%s:%d:1804289383", p.host, p.now().Unix())}}
}

// at returns the step that imitates line n of distlock.cpp.
func (g *gen18) at(n int) line { return g.step(fileOf["1.8"], n) }

// start begins to ping with the time of the process's clock (hole H5), like the ping thread of
// distlock.cpp:62. It does not wait for the first ping (hole H12).
func (g *gen18) start() {
	g.every(ping18, func() { _ = g.at(77).ping(g.id) })
}

// lock calls tryLock at the interval of the balancer (poll18), for at most the given patience.
func (g *gen18) lock(patience time.Duration) (*held, error) {
	return g.again(patience, cmp.Or(g.p.pace, poll18), g.tryLock)
}

// tryLock imitates lock_try, distlock.cpp:171.
func (g *gen18) tryLock() (*held, error) {
	steps := [4]line{g.at(185), g.at(189), g.at(263), g.at(266)}
	_, set, err := g.grab(1, steps, g.force)
	if err != nil {
		return nil, err // :268; :279 does not catch an exception (H11)
	}
	return g.held(document(set).id("ts"), nothing, g.unlock), nil
}

// force imitates the check of a held lock, distlock.cpp:197. It returns nil if it has freed the
// lock.
func (g *gen18) force(d document) error {
	ping, err := g.at(197).findOne(Read, pings, d.text("process"))
	if err != nil {
		return err
	}
	if ping == nil {
		g.at(206).note("no ping of %s: a person must act", owner(d.text("process")))
		return errHeld // forever, until a person acts
	}
	now := date(g.p.now()) // :209: compares its own clock with the holder's
	if now < ping.ping() {
		g.at(212).note("clock skew of %s", Span(time.Duration(ping.ping()-now)*time.Millisecond))
		return errHeld
	}
	const limit = 15 // minutes are truncated before the comparison: in effect 16
	minutes := (now - ping.ping()) / 60000
	if minutes <= limit {
		g.at(227).note("%d min since the ping <= %d", minutes, limit)
		return errHeld
	}
	g.at(227).note("%d min since the ping > %d: forces", minutes, limit)
	// The update matches only the _id, so it frees the lock of any holder (hole H1). mongos does not
	// check whether a document matched (hole H22).
	_, err = g.at(235).update(Take, byID(d.text("_id")), free)
	return err
}

// unlock imitates unlock, distlock.cpp:312. The lock object of mongos does not record that the lock
// is acquired (hole H23).
func (g *gen18) unlock() error {
	var err error
	for pause := 2 * time.Second; pause <= 1<<tries18*time.Second; pause *= 2 {
		// The update matches only the _id, so it frees the lock of any holder (hole H2). After a lost
		// reply the update is repeated (hole H3).
		_, err = g.at(319).update(Release, byID(g.p.w.lock), free)
		if err == nil {
			_, err = g.at(320).findOne(Reread, locks, g.p.w.lock) // for the log; a failure counts (H4)
		}
		if err == nil {
			return err
		}
		g.p.sleep(pause) // :331: after the last failure, too
	}
	return err // :335: there is no further attempt (H10)
}
