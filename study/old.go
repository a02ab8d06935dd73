package main

import (
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// An old is the part that the lock managers of all old generations share. A process of 1.8 to 3.0
// deletes pings that are four days old by its clock (hole H13). An old does not, because no case is
// that long.
type old struct {
	p       *process
	release string
	id      string          // process id
	queue   []bson.ObjectID // sessions to release after the next ping
	seen    seen            // zero without an observation
}

// A seen is the latest observation of a held lock (:315 of 2.0, :213 of 3.2).
type seen struct {
	process  string
	ping     bson.DateTime
	ts       bson.ObjectID
	at       time.Time // by the clock of the server
	election int
}

// step returns the step that imitates a line of a source file.
func (g *old) step(file string, n int) line { return line{g.p, file + ":" + strconv.Itoa(n)} }

// every starts a goroutine that calls round, and calls it again after each pause.
func (g *old) every(pause time.Duration, round func()) {
	g.p.Go(func() {
		for {
			round()
			g.p.sleep(pause)
		}
	})
}

// later queues a release, and adds a note to the given step.
func (g *old) later(at line, ts bson.ObjectID) {
	g.queue = append(g.queue, ts)
	at.note("queues the release until after its next ping")
}

// again repeats an attempt to lock, with pauses, until it succeeds or the patience ends (r2.4.14
// src/mongo/client/distlock.cpp:1139).
func (g *old) again(patience, pause time.Duration, try func() (*held, error)) (*held, error) {
	for end := g.p.w.Now() + patience; ; {
		h, err := try()
		left := end - g.p.w.Now()
		if err == nil || patience == 0 {
			return h, err
		}
		if g.p.sleep(min(pause, left)); left <= pause {
			return nil, err
		}
	}
}

// grab imitates lock_try of mirrored config servers up to the first update of the lock document.
// Its steps read the lock, insert a missing lock document, update the document, and read the
// result. The function force decides about a held lock. grab returns the match and the fields of
// the update.
func (g *old) grab(state int32, steps [4]line, force func(document) error) (
	match, set bson.D, err error) {
	name := g.p.w.lock
	match = append(byID(name), free...)
	d, err := steps[0].findOne(Read, locks, name)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case d == nil: // a failure is ignored
		_ = steps[1].insert(document(match).with(pairs("who", "")))
	case d.state() > 0:
		if err := force(d); err != nil {
			return nil, nil, err
		}
	case d.value("ts") != nil: // matches only the version that was read
		match = append(match, pairs("ts", d.id("ts"))...)
	}
	set = g.fields(state, g.p.w.objectID())
	n, err := steps[2].update(Grab, match, set)
	if err == nil {
		_, err = steps[3].findOne(Reread, locks, name) // mongos reads before it checks n
	}
	if err == nil && n == 0 {
		err = errHeld
	}
	return match, set, err // after an error the changes remain (hole H11)
}

// fields returns the fields of a lock document with a holder.
func (g *old) fields(state int32, ts bson.ObjectID) bson.D {
	return pairs("state", state, "who", g.id+":conn1", "process", g.id, "when", date(g.p.now()),
		"why", "work", "ts", ts)
}

// held returns an acquired lock. The old generations have no fence (hole G2-11), no signal of a
// loss (hole H8) and no lease.
func (g *old) held(ts bson.ObjectID, ask, release func() error) *held {
	return &held{session: g.id + " " + ts.Hex(), trusted: nothing, renew: nothing, ask: ask,
		release: release}
}

func nothing() error { return nil }
