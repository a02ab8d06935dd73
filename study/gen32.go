package main

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// gen32 is the lock of 3.2 to 6.0 on config servers that are a replica set (2015-2022). Each
// process has one gen32. A number such as :230 is a line of r3.2.22
// src/mongo/s/catalog/replset/replset_dist_lock_manager.cpp. A number after "catalog" is a line of
// dist_lock_catalog_impl.cpp in the same folder. There are three differences from 3.4 on (r3.4.18
// src/mongo/s/catalog/replset_dist_lock_manager.cpp). All attempts of a call use one session. A
// call can overtake its own lock (:377). A release also matches the name (:338). For 5.0 see
// file50.
type gen32 struct{ old }

const (
	ping32       = 30 * time.Second       // :67
	expiration32 = 15 * time.Minute       // :68
	retries32    = 2                      // :63
	tries32      = 3                      // src/mongo/s/client/shard_registry.cpp:83
	limit32      = 30 * time.Second       // limit of a command, :82 and :803 there
	poll32       = 500 * time.Millisecond // src/mongo/s/catalog/dist_lock_manager.cpp:41
	round32      = 10 * time.Second       // after an error, src/mongo/s/balance.cpp:124
)

// newGen32 returns a manager with a process id like that of r3.2.22
// src/mongo/s/catalog/forwarding_catalog_manager.cpp:72. All config servers share one id since
// r3.4.18 src/mongo/s/sharding_initialization.cpp:148.
func newGen32(p *process, release string) manager {
	p.limit = limit32
	g := &gen32{old{p: p, release: release,
		id: fmt.Sprintf("%s:%d:%d:-%d", p.host, p.port, p.now().Unix(), 1957747793+p.Index)}}
	switch {
	case p.role == configServer && release >= "5.0":
		g.id = "config"
	case p.role == configServer && release >= "3.4":
		g.id = "ConfigServer"
	case p.role == shard && release >= "5.0":
		g.id = "shard-" + p.host
	}
	return g
}

// at and catalog return the step that imitates line n of the lock manager's source and of
// dist_lock_catalog_impl.cpp.
func (g *gen32) at(n int) line      { return g.step(fileOf["3.2"], n) }
func (g *gen32) catalog(n int) line { return g.step(catalog32, n) }

// start imitates startUp, replset_dist_lock_manager.cpp:83. A config server of 3.4 to 4.4 that
// becomes primary frees all locks of config servers (hole G3-7). A primary shard of 5.0 frees all
// locks of its shard (hole G3-9). Both use unlockAll, catalog:309.
func (g *gen32) start() {
	at := line{process: g.p}
	switch {
	case g.p.role == configServer && g.release >= "3.4" && g.release < "5.0":
		at.source = "r4.0.18 src/mongo/db/repl/replication_coordinator_external_state_impl.cpp:830"
	case g.p.role == shard && g.release >= "5.0":
		at.source = file50 + "220"
	}
	for at.source != "" && g.tries(func() error {
		_, err := at.update(Release, pairs("process", g.id), free)
		return err
	}) != nil && g.p.role == shard { // a shard waits for success; a config server logs the error
		g.p.sleep(ping32)
	}
	g.every(ping32, g.task)
}

// task imitates a round of doTask, replset_dist_lock_manager.cpp:120. It sends a ping with the time
// of the process's clock, and then the queued releases.
func (g *gen32) task() {
	_ = g.at(130).ping(g.id) // a failure is logged
	queue := g.queue
	g.queue = nil
	for _, ts := range queue {
		if g.unlock(g.at(150), ts) != nil {
			g.later(g.at(155), ts)
		}
	}
}

// unlock sends the command of catalog:281. The command succeeds even if it matches no document.
func (g *gen32) unlock(at line, ts bson.ObjectID) error {
	return g.tries(func() error {
		match := pairs("ts", ts)
		if g.release >= "3.4" {
			match = append(match, byID(g.p.w.lock)...)
		}
		_, err := at.findAndModify(Release, free, false, match)
		return err
	})
}

// tries sends a command until it succeeds, at most three times, like shard_registry.cpp:632. It
// does not repeat a command that exceeded its time limit, shard_registry.cpp:153.
func (g *gen32) tries(send func() error) (err error) {
	for range tries32 {
		if err = send(); err == nil || errors.Is(err, errLimit) {
			break
		}
	}
	return err
}

// findOne is like line.findOne, but repeats a failed read, catalog:135.
func (g *gen32) findOne(at line, collection, id string) (d document, err error) {
	err = g.tries(func() error {
		d, err = at.findOne(Read, collection, id)
		return err
	})
	return d, err
}

// lock calls lockOnce, which imitates replset_dist_lock_manager.cpp:265. After an error it repeats
// the call, for at most the given patience.
func (g *gen32) lock(patience time.Duration) (*held, error) {
	end := g.p.w.Now() + patience
	for {
		h, err := g.lockOnce(end - g.p.w.Now())
		if err == nil || errors.Is(err, errHeld) || g.p.w.Now()+round32 > end {
			return h, err
		}
		g.p.sleep(round32)
	}
}

// lockOnce imitates the function lock of mongos, replset_dist_lock_manager.cpp:265.
func (g *gen32) lockOnce(wait time.Duration) (*held, error) {
	end, retries, ts := g.p.w.Now()+wait, 0, g.session()
	for {
		if g.release < "3.4" {
			ts = g.session() // :284: a session per attempt
		}
		err := g.grab(ts)
		if err == nil { // :304
			return g.got(ts), nil
		}
		if !errors.Is(err, errHeld) {
			// mongos releases the session and tries again (:313, hole G3-1).
			if retries < retries32 && !errors.Is(err, errLimit) && g.unlock(g.at(321), ts) == nil {
				retries++
				continue
			}
			g.later(g.at(338), ts)
			return nil, err
		}
		found, err := g.findOne(g.at(343), locks, g.p.w.lock)
		if err != nil {
			return nil, err
		}
		if found != nil {
			expired, err := g.expired(found) // :354
			if err != nil {
				return nil, err
			}
			own := g.release >= "3.4" && found.id("ts") == ts
			if own && g.release >= "5.0" {
				line{g.p, file50 + "98"}.note("all shards share its session: overtakes")
			}
			if expired || own {
				n, err := g.overtake(ts, found.id("ts"))
				if err != nil {
					g.later(g.at(384), ts)
					return nil, err
				}
				if n > 0 {
					return g.got(ts), nil
				}
			}
		}
		if wait > 0 { // :392
			g.p.sleep(min(poll32, end-g.p.w.Now()))
		}
		if retries = 0; g.p.w.Now() >= end { // :283
			return nil, errHeld
		}
	}
}

// file50 is the source file of release 5.0, in a commit of mongodb/mongo before that release.
const file50 = "14e04b0a src/mongo/db/s/dist_lock_manager_replset.cpp:"

// session returns a new session (:284). In 5.0 all processes of a role share one session (hole
// G3-11, file50:98).
func (g *gen32) session() bson.ObjectID {
	switch {
	case g.release < "5.0":
		return g.p.w.objectID()
	case g.p.role == configServer:
		return bson.ObjectID{1}
	}
	return bson.ObjectID{2}
}

// grab imitates grabLock, catalog:182.
func (g *gen32) grab(ts bson.ObjectID) error {
	_, err := g.catalog(196).findAndModify(Grab, g.fields(held20, ts), true,
		append(byID(g.p.w.lock), free...))
	if errors.Is(err, errDuplicate) {
		return errHeld
	}
	return err
}

// overtake imitates overtakeLock, catalog:233. It matches only the observed session or a free lock.
// It does not read the ping again (hole G3-4).
func (g *gen32) overtake(ts, current bson.ObjectID) (n int, err error) {
	return g.catalog(244).findAndModify(Take, g.fields(held20, ts), false,
		append(byID(g.p.w.lock), free...), pairs("_id", g.p.w.lock, "ts", current))
}

// expired imitates canOvertakeLock, replset_dist_lock_manager.cpp:172. Since 3.4 this function is
// named isLockExpired.
func (g *gen32) expired(d document) (bool, error) {
	ping, err := g.findOne(g.at(176), pings, d.text("process")) // a missing ping counts as 0
	if err != nil {
		return false, err
	}
	before := g.p.w.Now() // :193: measured by a timer
	var server time.Time
	var election int
	if err := g.tries(func() (err error) {
		server, election, err = g.at(194).serverStatus(0)
		return err
	}); err != nil {
		return false, err
	}
	delay := (g.p.w.Now() - before) / 2 // :202
	was, some := g.seen, !g.seen.at.IsZero()
	now := seen{ping: ping.ping(), ts: d.id("ts"), at: server, election: election}
	if some {
		now.at = server.Add(-delay) // :223; not at the first read
	}
	// After any change the contender starts to watch again (:209, :230).
	if !some || was.ping != now.ping || was.ts != now.ts || was.election != now.election {
		g.seen = now
		at := 230
		switch {
		case !some:
			at = 213
		case was.election != now.election:
			at = 238
		case was.ts != now.ts:
			at = 234
		}
		g.at(at).note("remembers the ping %s, read at %s by the primary's clock", value(now.ping),
			value(date(now.at)))
		return false, nil
	}
	elapsed := now.at.Sub(was.at)
	g.at(253).decides(now.at, was.at, expiration32, elapsed >= expiration32)
	return elapsed >= expiration32, nil
}

// got returns the acquired lock with a session (:304).
func (g *gen32) got(ts bson.ObjectID) *held {
	return g.held(ts, func() error { return g.ask(ts) }, func() error { return g.free(ts) })
}

// ask imitates checkStatus, replset_dist_lock_manager.cpp:434. It requires only that a lock
// document with the ts of this lock exists. It ignores the state in that document (hole G3-3).
func (g *gen32) ask(ts bson.ObjectID) error {
	if g.release >= "5.0" {
		return nil // 5.0 removed it
	}
	found, err := g.at(436).find(Read, locks, pairs("ts", ts))
	if err != nil {
		return err
	}
	if found == nil {
		return errLost
	}
	g.at(436).note("asks: its session is in the document, state %d", found.state())
	return nil
}

// free imitates unlock, replset_dist_lock_manager.cpp:416. A failed release is queued.
func (g *gen32) free(ts bson.ObjectID) error {
	err := g.unlock(g.at(417), ts)
	if err != nil {
		g.later(g.at(420), ts)
	}
	return err
}
