package study

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/virtual"
)

// noon is true time at the start of every play: a wrong clock differs visibly.
var noon = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// A world is one play of one case by one generation.
type world struct {
	*virtual.World
	generation Generation
	mirrors    []time.Duration // how far the clocks of the other config servers are ahead
	lock       string          // its name
	outage     int             // how many outages there are now: too few config servers are up
	way        time.Duration   // of a command to the server, and of its answer back
	limit      bool            // the time limit of a command is before its reply, where they race
	raced      bool            // a reply has raced its time limit
	takeover   time.Duration   // of all generations; 0: as each has it
	missed     []string        // knobs that were set, and cannot happen
	processes  []*process
	stops      []*stop
	parsed     map[string]document
	ids        uint64 // object ids that the play made
	record     *record
	judge      *judge
}

// play plays a case and returns its outcome. The package testing is where Go has virtual
// time; the zero value of its T serves outside of a test as well.
func play(c Case, g Generation) (p Play) {
	g = c.as(g)
	p = Play{Case: c.Name, Generation: g.Name, Title: g.Title}
	if p.Outcome.Not = c.not(g); p.Outcome.Not != "" {
		return p
	}
	raced := false
	virtual.Play(new(testing.T), noon, func(in *virtual.World) {
		w := &world{World: in, generation: g, parsed: map[string]document{}, way: 2 * ms,
			limit: c.limit, lock: cmp.Or(c.lock, "balancer")}
		w.record = &record{w: w, versions: map[string]map[string]bson.Raw{},
			words: map[string]string{}, unseen: c.unseen}
		w.judge = &judge{w: w, named: map[string]int{}}
		w.stage(c)
		for _, proc := range w.processes {
			w.At(proc.starts, -1, proc.begin)
		}
		for w.Now() < c.Length {
			w.Step(c.Length, w.judge.look)
		}
		p.Outcome, p.Record, p.Missed = w.judge.outcome(), w.record.result(), w.missed
		raced = w.raced
		for _, s := range w.stops {
			if !s.used {
				p.Missed = append(p.Missed, fmt.Sprintf("%s %s of %s", s.kind, s.what, s.p.name))
			}
		}
		for _, proc := range w.processes {
			proc.bury()
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
