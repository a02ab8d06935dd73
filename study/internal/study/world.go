package study

import (
	"testing"
	"time"

	"mongodlm/internal/test/virtual"
)

// noon is true time at the start of every play: a clock that is wrong is easily told from it.
var noon = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// way is how long a command, and its answer, are under way.
const way = 2 * time.Millisecond

// A world is one play of one case by one generation.
type world struct {
	*virtual.World
	generation Generation
	readOnly   bool // the server refuses to write
	processes  []*process
	stops      []*stop
	parsed     map[string]document
	ids        uint64 // object ids that the play made
	record     *record
	judge      *judge
}

// play plays a case and returns what became of it. The package testing is where Go has virtual
// time; the zero value of its T serves outside of a test as well.
func play(c Case, g Generation) (p Play) {
	virtual.Play(new(testing.T), noon, func(in *virtual.World) {
		w := &world{World: in, generation: g, parsed: map[string]document{}}
		w.record = &record{w: w, versions: map[string][]byte{}, words: map[string]string{}}
		w.judge = &judge{w: w}
		c.Play(&Stage{w: w})
		for _, proc := range w.processes {
			w.At(proc.starts, -1, proc.begin)
		}
		for w.Now() < c.Length {
			w.Step(c.Length, w.judge.look)
		}
		w.judge.end()
		p = Play{Case: c.Name, Generation: g.Name, Length: c.Length,
			Outcome: w.judge.outcome(), Record: w.record.result()}
		for _, proc := range w.processes {
			proc.bury()
		}
		w.Drain(func(limit time.Duration) { w.Step(limit, w.judge.look) })
	})
	return p
}
