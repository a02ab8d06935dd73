package main

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/virtual"
)

// noon is the true time at the start of every play.
var noon = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// way is the time of a command to the server, and of its reply back.
const way = 2 * ms

// A world is one play of one case by one generation.
type world struct {
	*virtual.World
	generation Generation
	mirrors    []time.Duration // lead of the clocks of the other config servers
	lock       string          // name of the lock
	outage     bool            // at present
	limit      bool            // a command's time limit wins a race with its reply
	raced      bool            // a reply has raced its time limit
	processes  []*process
	stops      []*turn // accidents of commands
	ids        uint64  // number of object ids that the play made
	record     *record
	judge      *judge
}

// play plays a case in virtual time, which requires a testing.T. Outside of a test, the zero value
// of testing.T works.
func play(c Case, g Generation) (p Play) {
	g = c.as(g)
	p = Play{Case: c.Name, Generation: g.Name, Title: g.Title}
	if p.Outcome.Not = c.not(g); p.Outcome.Not != "" {
		return p
	}
	raced := false
	virtual.Play(new(testing.T), noon, func(in *virtual.World) {
		w := &world{World: in, generation: g,
			limit: c.limit, lock: cmp.Or(c.lock, "balancer")}
		w.record = &record{w: w, versions: map[string]map[string]bson.Raw{},
			words: map[string]string{}}
		w.judge = &judge{w: w, named: map[string]int{}}
		w.stage(c)
		for _, proc := range w.processes {
			w.At(proc.starts, -1, proc.begin)
		}
		for w.Now() < c.Length {
			w.Step(c.Length, w.judge.look)
		}
		p.Outcome = w.judge.outcome()
		w.record.result(&p)
		raced = w.raced
		for _, s := range w.stops {
			if !s.used {
				p.Missed = append(p.Missed, fmt.Sprintf("%s (%s) of %s", s.kind, s.what, s.p.name))
			}
		}
		for _, proc := range w.processes {
			proc.Bury(proc.end)
		}
		w.Drain(func(limit time.Duration) { w.Step(limit, w.judge.look) })
	})
	if raced && !c.limit {
		c.limit = true
		other := play(c, g).Outcome
		if !slices.Equal(other.Parts(), p.Outcome.Parts()) {
			p.Outcome.Other = &other
		}
	}
	return p
}
