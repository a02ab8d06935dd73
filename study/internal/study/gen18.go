package study

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// gen18 is the lock of mongos 1.8 (2011), one per process. Numbers such as 1.6 and L3 are those of
// the notes on its source, docs/semantics.md tells of the holes (H1 and so on).
//
// Not played: several mirrored config servers, so nothing of the tournament of 1.8, 1.12.
type gen18 struct {
	p  *process
	id string // H15: rand() was not seeded, so the last part is a constant, and there is no port
}

// The constants of 1.3.
const (
	takeover18 = 15 // minutes, compared after truncation: 16 in effect
	ping18     = 30 * time.Second
	keepPing18 = 4 * 24 * time.Hour
	poll18     = 30 * time.Second // of the balancer
	tries18    = 3
)

func newGen18(p *process) manager {
	return &gen18{p: p, id: fmt.Sprintf("%s:%d:1804289383", p.host, p.now().Add(-p.w.Now()).Unix())}
}

// start is 1.4: the thread of the pings is started, nobody waits for its first ping (H12).
func (g *gen18) start() bool {
	g.p.Go(g.pings)
	return true
}

// pings is the ping loop, 1.5.
func (g *gen18) pings() {
	for {
		if err := g.ping(); errors.Is(err, errThread) {
			g.p.w.record.mark(g.p, "trouble", "its ping thread ends")
			return // 1.4 step 3: logged, and never started again (H16)
		}
		g.p.sleep(ping18) // P12, also after an error
	}
}

func (g *gen18) ping() error {
	// P3: by its own clock (H5).
	_, err := g.p.update(Ping, pings, bson.D{{Key: "_id", Value: g.id}},
		bson.D{{Key: "ping", Value: date(g.p.now())}}, true)
	if err != nil {
		return err // P4
	}
	// P5: all documents, held or not.
	all, err := g.p.find(Clean, locks, nil)
	if err != nil {
		return err // P10
	}
	var named []string
	for _, d := range all {
		named = append(named, d.text("process"))
	}
	// P6: who is not named, and silent for 4 days by MY clock (H13).
	before := date(g.p.now().Add(-keepPing18))
	return g.p.remove(Clean, pings, "{_id: not named by a lock, ping: before "+
		before.Time().UTC().Format(time.DateOnly)+"}", func(d document) bool {
		return !slices.Contains(named, d.text("_id")) && d.ping() < before
	})
}

// lock calls lock_try as the balancer does: again after 30 s, until patience is over.
func (g *gen18) lock(name string, patience time.Duration) (tenure, error) {
	return again(g.p, patience, poll18, func() (tenure, error) { return g.tryLock(name) })
}

// tryLock is lock_try, 1.6.
func (g *gen18) tryLock(name string) (tenure, error) {
	byName := bson.D{{Key: "_id", Value: name}}
	match := bson.D{{Key: "_id", Value: name}, {Key: "state", Value: int32(0)}} // L2
	d, err := g.p.findOne(locks, name)                                          // L3
	if err != nil {
		return nil, err
	}
	switch {
	case d == nil: // L4: a failure is swallowed
		_ = g.p.insert(Read, locks, document(match).with(bson.D{{Key: "who", Value: ""}}))
	case d.state() > 0: // L5
		if err := g.force(d, byName); err != nil {
			return nil, err
		}
	case d.value("ts") != nil: // L6: only the version just read
		match = append(match, bson.E{Key: "ts", Value: d.id("ts")})
	}
	ts := g.p.w.objectID(g.p)                        // L8
	n, err := g.p.update(Grab, locks, match, bson.D{ // L9, L10
		{Key: "state", Value: int32(1)}, {Key: "who", Value: g.id + ":conn1:846930886"},
		{Key: "process", Value: g.id}, {Key: "when", Value: date(g.p.now())},
		{Key: "why", Value: "work"}, {Key: "ts", Value: ts},
	}, false)
	if err != nil {
		return nil, err // 1.12: escapes as an exception, and nobody undoes what it may have done (H11)
	}
	if n == 0 {
		return nil, errHeld // L11
	}
	return &held18{g, name, ts}, nil
}

// force is the examination of a lock that is held, 1.7. Without an error the lock is free now.
func (g *gen18) force(d document, byName bson.D) error {
	ping, err := g.p.findOne(pings, d.text("process")) // T1
	if err != nil {
		return err
	}
	if ping == nil {
		return errHeld // T2: for ever, until a person acts
	}
	now := date(g.p.now()) // T3: its own clock against the holder's
	if now < ping.ping() {
		return errHeld
	}
	if minutes := int64(now-ping.ping()) / 60000; minutes <= takeover18 { // T4, T6
		return errHeld
	}
	// T7: by _id alone, so it frees whoever holds the lock by then (H1). T8, H22: n is not looked at.
	_, err = g.p.update(Take, locks, byName, bson.D{{Key: "state", Value: int32(0)}}, false)
	if err != nil {
		return errHeld
	}
	return nil
}

func (g *gen18) close() {} // 4: the ping is left behind

// held18 is a lock that was got. The object remembers nothing of it (H23).
type held18 struct {
	g    *gen18
	name string
	ts   bson.ObjectID
}

func (h *held18) session() string { return h.g.id + " " + h.ts.Hex() }
func (h *held18) fence() int64    { return 0 }
func (h *held18) trusted() error  { return nil } // H8: nothing tells it
func (h *held18) proceed() error  { return nil }
func (h *held18) check() error    { return nil }

// release is unlock, 1.9.
func (h *held18) release() error {
	var err error
	for pause := 2 * time.Second; pause <= 1<<tries18*time.Second; pause *= 2 {
		// By _id alone, whoever holds it (H2), and again when the reply was lost (H3).
		_, err = h.g.p.update(Release, locks, bson.D{{Key: "_id", Value: h.name}},
			bson.D{{Key: "state", Value: int32(0)}}, false)
		if err == nil {
			_, err = h.g.p.findOne(locks, h.name) // for the log; its failure counts (H4)
		}
		if err == nil {
			return nil
		}
		h.g.p.sleep(pause) // after the last failure, too
	}
	return err // H10: nobody tries again
}
