package study

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// gen18 is the lock of mongos 1.5.5 to 1.8 (2010-2011), one per process. Lines such as :185 refer
// to r1.8.5 client/distlock.cpp; other releases are named. docs/semantics.md explains the holes (H1
// and so on). Not played: the assertion of r1.6.0:113 that a thread does not lock twice.
type gen18 struct {
	p       *process
	release release
	id      string // :39, H15: rand() was not seeded, so the last part is a constant; no port
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

// at is a step, by its line in r1.8.5 and in r1.6.5, where that has it.
func (g *gen18) at(r185, r165 int) line {
	if r165 > 0 && !g.release.since(1, 7, 6) {
		return line{g.p, "r1.6.5 client/distlock.cpp:" + strconv.Itoa(r165)}
	}
	return line{g.p, fileOf["1.8"] + ":" + strconv.Itoa(r185)}
}

// start begins the thread of the pings, _distLockPingThread, :62-128, without waiting for its first
// ping (:149-156, H12).
func (g *gen18) start() bool {
	g.p.Go(func() {
		for {
			_ = g.ping()
			g.p.sleep(ping18) // also after an error
		}
	})
	return true
}

func (g *gen18) ping() error {
	err := g.at(77, 58).ping(g.id) // by its own clock (H5)
	if err != nil {
		return err
	}
	var all []document
	if g.release.since(1, 7, 3) { // held or not; before that, pings of silent processes went, r1.6.5:66
		if all, err = g.at(94, 0).find(Clean, locks, nil); err != nil {
			return err
		}
	}
	return g.at(104, 68).prune(all) // :103: 4 days by MY clock (H13)
}

// lock calls lock_try as the balancer does (poll18), until patience is over.
func (g *gen18) lock(name string, patience time.Duration) (tenure, error) {
	return again(g.p, patience, cmp.Or(g.p.pace, poll18),
		func() (tenure, error) { return g.tryLock(name) })
}

// tryLock is lock_try, :171-310.
func (g *gen18) tryLock(name string) (tenure, error) {
	match := append(byID(name), free...)
	d, err := g.at(185, 121).findOne(locks, name)
	if err != nil {
		return nil, err
	}
	switch {
	case d == nil: // :189: a failure is swallowed
		_ = g.at(189, 124).insert(Insert, locks, document(match).with(bson.D{{Key: "who", Value: ""}}))
	case d.state() > 0: // :196
		if err := g.force(d); err != nil {
			return nil, err
		}
	case d.value("ts") != nil: // :246: only the version just read
		match = append(match, bson.E{Key: "ts", Value: d.id("ts")})
	}
	ts := g.p.w.objectID(g.p)
	set := bson.D{
		{Key: "state", Value: int32(1)}, {Key: "who", Value: g.id + ":conn1:846930886"},
		{Key: "process", Value: g.id}, {Key: "when", Value: date(g.p.now())},
		{Key: "why", Value: "work"}, {Key: "ts", Value: ts},
	}
	n, err := g.at(263, 165).update(Grab, locks, match, set, false)
	if err == nil {
		_, err = g.at(266, 168).reread(name) // before it checks n
	}
	if err != nil {
		return nil, err // :279 catches another exception: this one escapes, and the changes stay (H11)
	}
	if n == 0 {
		return nil, errHeld // :268
	}
	return &held18{bare{g.id, ts}, g, name}, nil
}

// force is the examination of a lock that is held, :197-243. Without an error the lock is free now.
func (g *gen18) force(d document) error {
	ping, err := g.at(197, 130).findOne(pings, d.text("process"))
	if err != nil {
		return err
	}
	if ping == nil {
		g.at(206, 135).note("no ping of %s: a person must look", owner(d.text("process")))
		return errHeld // for ever, until a person acts
	}
	now := date(g.p.now()) // :209: its own clock against the holder's
	if now < ping.ping() && g.release.since(1, 8, 0) {
		g.at(212, 0).note("clock skew of %s", Span(time.Duration(ping.ping()-now)*time.Millisecond))
		return errHeld
	}
	limit := uint64(15) // minutes, cut off before they are compared: 16 in effect
	if !g.release.since(1, 7, 6) {
		limit = 10 // r1.7.5 client/distlock.h:47
	}
	if t := g.p.w.takeover; t > 0 {
		limit = uint64(t / time.Minute)
	}
	// r1.6.5:138: unsigned, so a ping in the future is ancient
	minutes := uint64(now-ping.ping()) / 60000
	if minutes <= limit {
		g.at(227, 141).note("%d min since the ping <= %d", minutes, limit)
		return errHeld
	}
	g.at(227, 141).note("%d min since the ping > %d: forces", minutes, limit)
	// By _id alone, so it frees the lock of any present holder (H1). H22: n is not checked.
	_, err = g.at(235, 148).update(Take, locks, byID(d.text("_id")), free, false)
	return err
}

// held18 is an acquired lock. The object does not remember it (:312, H23).
type held18 struct {
	bare
	g    *gen18
	name string
}

// release is unlock, :312-337.
func (h *held18) release() error {
	var err error
	for pause := 2 * time.Second; pause <= 1<<tries18*time.Second; pause *= 2 {
		// By _id alone, with any holder (H2), and again after a lost reply (H3).
		_, err = h.g.at(319, 220).update(Release, locks, byID(h.name), free, false)
		if err == nil {
			_, err = h.g.at(320, 221).reread(h.name) // for the log; its failure counts (H4)
		}
		if err == nil || !h.g.release.since(1, 6, 1) { // r1.6.0:217: once, and the exception escapes
			return err
		}
		h.g.p.sleep(pause) // :331: after the last failure, too
	}
	return err // :335: there is no further attempt (H10)
}
