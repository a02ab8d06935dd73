package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// gen20 is the lock of mongos 1.9 to 3.0 (2011-2015). Each process has one gen20. Since 2.0.1 all
// locks of a process share this state. A number such as :607 is a line of r2.0.9
// client/distlock.cpp. For other releases the files are r2.4.14 src/mongo/client/distlock.cpp and
// r2.6.12 src/mongo/s/distlock.cpp. gen20 has no re-entry, which mongos did not use. It also omits
// the zero ts in the documents that 2.6 inserts.
type gen20 struct {
	old
	pings bool // the ping thread runs
	// mutex is the mutex of the pinger (:67), which guards pings and queue. The pinger also holds the
	// mutex during requests to servers (hole G2-7).
	mutex chan struct{}
}

const (
	timeout20 = 15 * time.Minute // r2.0.9 client/distlock.h:26
	skew20    = timeout20 / 30   // between clocks, :302-304
	tries20   = 3                // :892

	prepared20, held20 int32 = 1, 2 // the states, :548 and :825
)

// newGen20 returns a manager whose process id has no random number, because mongos never seeds
// rand(). Since no case delays a ping, gen20 omits the time limit of a ping (SERVER-3784).
func newGen20(p *process, release string) manager {
	g := &gen20{mutex: make(chan struct{}, 1), old: old{p: p, release: release,
		id: fmt.Sprintf("%s:%d:%d:1804289383", p.host, p.port, p.now().Unix())}}
	g.mutex <- struct{}{} // :67: the mutex starts unlocked
	return g
}

// at returns the step that imitates line r209 of release 2.0.9, or line r2612 of 2.6.12.
func (g *gen20) at(r209, r2612 int) line {
	if g.release >= "2.6" {
		return g.step(fileOf["2.6"], r2612)
	}
	return g.step(fileOf["2.0"], r209)
}

// start begins to ping, like the first lock_try of any lock (distlock.cpp:470). It ignores an
// error, because the next lock_try checks again.
func (g *gen20) start() { g.p.Go(func() { _ = g.begin() }) }

// alone locks the mutex of the pinger. The returned function unlocks the mutex.
func (g *gen20) alone() (done func()) {
	g.p.await(g.mutex)
	return func() { g.mutex <- struct{}{} }
}

// begin imitates got(), distlock.cpp:221. It starts the pings if they are not running. If the
// clocks of the config servers differ too much, it returns an error, and the process gets no lock.
func (g *gen20) begin() error {
	if g.pings && g.p.pace == 0 {
		return nil // :470: the lock object already has its ping thread
	}
	defer g.alone()() // :224
	if g.pings {
		return nil
	}
	if err := g.checkSkew(g.at(236, 284)); err != nil {
		return err // 13650
	}
	g.pings = true
	g.every(skew20, func() { _ = g.ping() }) // _distLockPingThread, :70-202
	return nil
}

// checkSkew compares the clocks of the config servers in three rounds, like distlock.cpp:382. It
// does this even with a single server. If the clocks differ too much, it adds a note to the given
// step.
func (g *gen20) checkSkew(at line) error {
	skews := make([]time.Duration, 1+len(g.p.w.mirrors))
	for range 3 {
		for i := range skews {
			remote, err := g.remoteTime(i)
			if err != nil {
				return err
			}
			skews[i] += remote.Sub(g.p.now())
		}
	}
	if spread := (slices.Max(skews) - slices.Min(skews)) / 3; spread > skew20 { // :444
		at.note("the servers' clocks differ by %s, limit %s", Span(spread), Span(skew20))
		return errSkewed
	}
	return nil
}

// ping is one round of the ping thread, distlock.cpp:70.
func (g *gen20) ping() error {
	if err := g.at(93, 125).ping(g.id); err != nil {
		return err
	}
	defer g.alone()()      // :149
	for len(g.queue) > 0 { // :156: the late unlocks
		_, err := g.at(161, 204).update(Release, pairs("ts", g.queue[0]), free)
		if err != nil { // :170
			return err
		}
		g.queue = g.queue[1:]
	}
	return nil
}

// later queues a release, like addUnlockOID, distlock.cpp:250. It adds a note to the given step.
func (g *gen20) later(at line, ts bson.ObjectID) {
	defer g.alone()() // :252
	g.old.later(at, ts)
}

// lock calls tryLock repeatedly, for at most the given patience. In 2.0 it pauses between two calls
// like the balancer (r2.0.9 s/balance.cpp:302). From 2.4 on it pauses like
// ScopedDistributedLock::acquire (r2.4.14:1102, 1161).
func (g *gen20) lock(patience time.Duration) (*held, error) {
	poll := cmp.Or(g.p.pace, 30*time.Second)
	if g.release >= "2.6" {
		poll = time.Second
	}
	return g.again(patience, poll, g.tryLock)
}

// tryLock imitates lock_try, distlock.cpp:466.
func (g *gen20) tryLock() (*held, error) {
	if err := g.begin(); err != nil {
		return nil, err
	}
	steps := [4]line{g.at(496, 620), g.at(502, 626), g.at(717, 868), g.at(722, 873)}
	match, set, err := g.grab(prepared20, steps, g.force)
	if err != nil {
		return nil, err // :724; :816, 13663: no release is queued
	}
	ts := document(set).id("ts")
	set[0].Value = held20
	n, err := g.at(839, 1004).update(Finalize, match[:1], set) // by _id alone (G2-1)
	var d document
	if err == nil {
		d, err = g.at(844, 1009).findOne(Reread, locks, g.p.w.lock)
	}
	if err != nil {
		g.later(g.at(861, 1026), ts) // 13662
		return nil, err
	}
	if n < 1 {
		return nil, errHeld // :846
	}
	return g.held(ts, g.ask, func() error { return g.unlock(d) }), nil
}

// force imitates the part of lock_try that decides about a held lock, distlock.cpp:509. It returns
// nil if it has taken the lock from a dead holder.
func (g *gen20) force(d document) error {
	ping, err := g.at(528, 666).findOne(Read, pings, d.text("process")) // a missing ping counts as 0
	if err != nil {
		return err
	}
	remote, err := g.remoteTime(0) // :543
	if err != nil {
		return err // only a LockException is caught (:566)
	}
	was := g.seen
	now := seen{process: d.text("process"), ping: ping.ping(), ts: d.id("ts"), at: remote}
	// While the holder prepares the lock, mongos ignores the ping of the holder (:548, hole G2-9).
	changed := was.ts != now.ts || d.state() == held20 &&
		(was.process != now.process || was.ping != now.ping)
	if changed || was.at.IsZero() {
		g.seen = now
		g.at(553, 694).note("remembers the ping %s, read at %s by the server's clock",
			value(now.ping), value(date(now.at)))
		return errHeld
	}
	elapsed := max(0, remote.Sub(was.at)) // :560: a step back counts as 0
	g.at(575, 718).decides(remote, was.at, timeout20, elapsed > timeout20)
	if elapsed <= timeout20 {
		return errHeld
	}
	g.seen = seen{} // :595
	if err := g.checkSkew(g.at(603, 746)); err != nil {
		return err // 14023
	}
	n, err := g.at(607, 750).update(Take,
		pairs("_id", g.p.w.lock, "state", d.state(), "ts", now.ts), free)
	if err != nil {
		return err // :629, 13660
	}
	if n < 1 {
		return errHeld // :614
	}
	return nil
}

// remoteTime returns the time of a config server, minus half the duration of the request, like
// distlock.cpp:345. The process's clock measures the duration. Since no case delays this request,
// gen20 omits the limit of the duration (13648) and the restart of a watch after it.
func (g *gen20) remoteTime(server int) (time.Time, error) {
	then := g.p.now()
	at, _, err := g.at(355, 409).serverStatus(server)
	return at.Add(-g.p.now().Sub(then) / 2), err
}

// ask imitates isLockHeld, r2.4.14:509. It compares the state and the process in the lock document,
// but not the ts. Releases before 2.4.2 have no such check.
func (g *gen20) ask() error {
	if g.release < "2.6" {
		return nil
	}
	at := g.at(0, 548)
	d, err := at.findOne(Read, locks, g.p.w.lock)
	if err != nil {
		return err
	}
	at.note("asks: state %d of %s", d.state(), owner(d.text("process")))
	if d.state() < held20 || d.text("process") != g.id || slices.Contains(g.queue, d.id("ts")) {
		return errLost
	}
	return nil
}

// unlock imitates unlock, distlock.cpp:886. It uses the document after the second step of lock_try
// (:869).
func (g *gen20) unlock(got document) error {
	if got.state() != held20 {
		return errLost // :907: invalid, so no release is queued
	}
	var n int
	var err error
	match := pairs("_id", g.p.w.lock, "ts", got.id("ts"))
	for try := range tries20 {
		n, err = g.at(914, 1089).update(Release, match, free)
		if err == nil && n > 0 {
			return nil
		}
		if try > 0 && errors.Is(err, errUnreachable) && g.release < "2.6" &&
			len(g.p.w.mirrors) == 0 {
			// With one config server, the new connection is made outside of the try block, so its exception
			// ends unlock (:900, r2.4.14:1031). From r2.6.12:1072 on, the connection is made inside the
			// block. The connection to three servers throws no exception (r2.0.9
			// client/syncclusterconnection.cpp:55).
			return err
		}
		if err == nil {
			err = errNothing // :922
		} else if try < tries20-1 {
			g.p.sleep(2 * time.Second << try) // :944
		}
	}
	g.later(g.at(954, 1130), got.id("ts"))
	return err
}
