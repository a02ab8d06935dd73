package claim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/test/fault"
)

var (
	simRows = flag.Int("claim.rows", 10_000, "rows of the simulation; 100000 is the long run")
	simSeed = flag.Uint64("claim.seed", 1, "seed of the simulation's faults")
)

// A host is a process of the simulation.
type host struct {
	*proc
	s *sim

	mu      sync.Mutex    // guards the rest
	dead    bool          // for good
	stopped chan struct{} // closed when it goes on; nil while it runs
}

// A sim judges what becomes of the rows.
type sim struct {
	*world
	n    int // rows at the start; every tenth adds another
	over chan struct{}

	mu      sync.Mutex // guards the rest
	random  *rand.Rand
	running map[int]map[*Row[item]]*host
	given   map[[2]int64]bool // row and fence
	effects map[int]int64     // the largest fence that each row's effect was accepted with
	calm    bool              // no more faults
	refused int
	handled int
	bad     []string
}

func (s *sim) wrong(format string, args ...any) {
	if len(s.bad) < 10 {
		s.bad = append(s.bad, fmt.Sprintf(format, args...))
	}
}

// state says whether the process lives, and waits while it is stopped.
func (h *host) state() error {
	h.mu.Lock()
	dead, stopped := h.dead, h.stopped
	h.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
	if dead {
		return errCut
	}
	return nil
}

func (h *host) kill() { h.mu.Lock(); h.dead = true; h.mu.Unlock() }

func (h *host) stop() (goOn func()) {
	gone := make(chan struct{})
	h.mu.Lock()
	h.stopped = gone
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		h.stopped = nil
		h.mu.Unlock()
		close(gone)
	}
}

func (s *sim) below(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// fault chooses what becomes of a command; most are carried out.
func (s *sim) fault() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calm {
		return -1
	}
	return s.random.IntN(200)
}

// start starts a process whose commands take time, fail, lose their replies, or are carried out
// late.
func (s *sim) start() *host {
	h := &host{s: s}
	h.proc = s.world.start(Config{Workers: 20, Batch: 25, MaxAttempts: 1000})
	h.lock.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if h.state() != nil {
			return fault.Refused(call.Op)
		}
		return apply()
	})
	h.gate.set(func(_ context.Context, _ string, apply func() error) error {
		time.Sleep(time.Duration(s.below(20)) * time.Millisecond)
		if err := h.state(); err != nil {
			return err
		}
		switch s.fault() {
		case 0:
			return errCut
		case 1:
			_ = apply()
			return errCut
		case 2:
			late := time.Duration(s.below(1800)) * time.Second
			go func() {
				time.Sleep(late)
				_ = apply()
			}()
			return errCut
		}
		return apply()
	})
	return h
}

// handle is the work on a row: it takes a second or two, has an effect outside, and adds a row.
func (h *host) handle(_ context.Context, row *Row[item]) error {
	s, id := h.s, row.Doc.ID
	s.begin(h, row)
	defer s.end(row)
	time.Sleep(time.Duration(s.below(2000)) * time.Millisecond)
	if h.state() != nil {
		<-s.over // a dead process does nothing more
		return errCut
	}
	if id < s.n && id%10 == 0 {
		err := h.Add(context.Background(), item{ID: s.n + id, Child: true})
		if errors.Is(err, errCut) { // else it was added before
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if row.Fence() < s.effects[id] {
		s.refused++
		return nil // it believes that it is done; the row knows better
	}
	s.effects[id] = row.Fence()
	if s.random.IntN(100) == 0 {
		return errors.New("bad luck")
	}
	return nil
}

func (s *sim) begin(h *host, row *Row[item]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handled++
	id := row.Doc.ID
	key := [2]int64{int64(id), row.Fence()}
	if s.given[key] {
		s.wrong("row %d was given twice with fence %d", id, row.Fence())
	}
	s.given[key] = true
	for other, of := range s.running[id] {
		if other.Err() == nil && !of.dead {
			s.wrong("row %d has two workers that believe in it, fences %d and %d", id, other.Fence(),
				row.Fence())
		}
	}
	if s.running[id] == nil {
		s.running[id] = map[*Row[item]]*host{}
	}
	s.running[id][row] = h
}

func (s *sim) end(row *Row[item]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running[row.Doc.ID], row)
}

// simulate runs 100 workers in 5 processes; two are killed, one is stopped past its deadline and
// goes on.
func simulate(t *testing.T, n int, seed uint64, careless bool) (s *sim) {
	inBubbleAlone(t, func(t *testing.T, w *world) {
		s = &sim{world: w, n: n, over: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 0)),
			running: map[int]map[*Row[item]]*host{}, given: map[[2]int64]bool{}, effects: map[int]int64{}}
		w.add(0, n)
		if careless {
			w.rows.Careless()
		}
		var hosts []*host
		var stops []func()
		for range 5 {
			h := s.start()
			hosts = append(hosts, h)
			stops = append(stops, h.run(t, h.handle))
		}
		work := time.Duration(n) * time.Second / 100
		time.Sleep(work / 4)
		hosts[0].kill()
		time.Sleep(work / 8)
		goOn := hosts[1].stop()
		time.Sleep(work / 8)
		hosts[2].kill()
		time.Sleep(takeoverTime * 5 / 4)
		goOn()
		total := n + n/10
		for end := time.Now().Add(3 * time.Hour); w.counts() != (Counts{Done: int64(total)}); {
			if time.Now().After(end) {
				s.mu.Lock()
				s.wrong("not all done: %+v of %d", w.counts(), total)
				s.mu.Unlock()
				break
			}
			time.Sleep(time.Second)
		}
		s.mu.Lock()
		s.calm = true
		s.mu.Unlock()
		time.Sleep(31 * time.Minute) // what is late arrives
		close(s.over)
		for _, stop := range stops {
			stop()
		}
		for _, row := range w.rows.All() {
			id, _ := row.ID.AsInt64OK()
			if dones := w.rows.Dones(row.ID); dones != 1 {
				s.wrong("row %d was marked done %d times", id, dones)
			}
			if s.effects[int(id)] == 0 {
				s.wrong("row %d is done and had no effect", id)
			}
		}
		t.Logf("%d rows, %d handled, %d stale effects refused", total, s.handled, s.refused)
	})
	return s
}

// Every row is done exactly once, its effect outside happens at least once with rising fences, none
// is lost, none stuck, and no two workers believe in one row.
func TestSimulation_100Workers_EveryRowOnce(t *testing.T) {
	t.Parallel()
	n := *simRows
	if testing.Short() {
		n = min(n, 3000)
	}
	for _, wrong := range simulate(t, n, *simSeed, false).bad {
		t.Error(wrong)
	}
}

// The same with a store whose completions do not compare the claim: the simulation notices.
func TestSimulation_CompletionWithoutClaim_IsNoticed(t *testing.T) {
	t.Parallel()
	if len(simulate(t, 2000, 1, true).bad) == 0 {
		t.Error("nothing was noticed: the simulation has no teeth")
	}
}
