package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/election"
)

// Times of the random test.
const (
	randomTakeover = time.Minute
	randomPing     = 5 * time.Second
	windDown       = 20 * time.Second // the longest run of a function after its context
	backoff        = 10 * time.Second
)

// Candidates queue, die, are paused, resign, hand over, are asked to yield, fail and come again at
// random. Six promises hold:
//
//   - At most one term is trusted.
//   - No term begins while the function of a term that was not lost still runs.
//   - Every term has a larger fence than the terms before it.
//   - A hand-over goes to its candidate.
//   - A request reaches only its term.
//   - A candidate leads within a bounded time, if a candidate can lead.
func TestRun_AnythingHappens_Random(t *testing.T) {
	seeds, steps := 10, 120
	if testing.Short() {
		seeds = 3
	}
	var sum tally
	var mu sync.Mutex // guards the variable sum
	t.Run("seeds", func(t *testing.T) {
		for seed := range seeds {
			inBubbleSub(t, fmt.Sprint(seed), func(t *testing.T, w *world) {
				s := &scene{
					w: w, r: rand.New(rand.NewPCG(uint64(seed), 1)), began: map[int64]string{},
					running: map[int64]*election.Leadership{}, asked: map[int64]bool{},
				}
				s.play(steps)
				mu.Lock()
				defer mu.Unlock()
				s.mu.Lock() // functions and hand-overs continue until the end of the test
				defer s.mu.Unlock()
				sum.add(s.tally)
			})
		}
	})
	t.Logf("%+v", sum)
	if sum.terms < 10*seeds || sum.handed < seeds || sum.yielded < seeds || sum.lost < seeds ||
		sum.died < seeds {
		t.Errorf("too little happens: %+v", sum)
	}
}

// A tally counts the events, so that a test without events is noticed.
type tally struct {
	terms, handed, refused, yielded, lost, died int
}

func (a *tally) add(b tally) {
	a.terms, a.handed, a.refused = a.terms+b.terms, a.handed+b.handed, a.refused+b.refused
	a.yielded, a.lost, a.died = a.yielded+b.yielded, a.lost+b.lost, a.died+b.died
}

// A scene is the state of one random test.
type scene struct {
	w          *world
	r          *rand.Rand
	candidates []*candidate
	tally

	mu      sync.Mutex // guards the fields below, and the tally
	leaders []*election.Leadership
	fence   int64                          // the largest fence of a term that began
	running map[int64]*election.Leadership // by fence: the terms whose function has not returned
	began   map[int64]string               // by fence: the process that led
	asked   map[int64]bool                 // by fence: the leader was asked to yield
	led     time.Time                      // the time of the last leader or disturbance
}

// A candidate is one process and its Run.
type candidate struct {
	p      *proc
	e      *election.Election
	cancel context.CancelFunc
	over   chan struct{}
	cut    bool
}

func (s *scene) play(steps int) {
	for range 4 {
		s.stand()
	}
	for range steps {
		s.step()
		for left := time.Duration(s.r.IntN(30)) * time.Second; left > 0; left -= time.Second {
			time.Sleep(time.Second)
			s.check()
		}
	}
}

// trusted returns the terms that are trusted at this instant. It fails the test if there are
// several. The caller holds mu.
func (s *scene) trusted() (trusted []int64) {
	for _, l := range s.leaders {
		if l.Err() == nil {
			trusted = append(trusted, l.Fence())
		}
	}
	if len(trusted) > 1 {
		s.w.t.Errorf("terms %v are trusted at once", trusted)
	}
	return trusted
}

// check verifies that a candidate leads in time and that at most one term is trusted.
func (s *scene) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	trusted, able := s.trusted(), false
	for _, c := range s.candidates {
		able = able || !c.cut
	}
	if len(trusted) == 1 || !able {
		s.led = time.Now()
	}
	if gap := time.Since(s.led); gap > randomTakeover+randomPing+windDown+backoff {
		s.w.t.Fatalf("nobody has led for %v: %+v", gap, s.w.lock())
	}
}

// disturbed records a disturbance. The time without a leader counts from here.
func (s *scene) disturbed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.led = time.Now()
}

func (s *scene) stand() {
	s.disturbed()
	c := &candidate{over: make(chan struct{})}
	c.p = s.w.startWith(func(cfg *distlock.Config) {
		cfg.Takeover, cfg.Ping, cfg.Margin = randomTakeover, randomPing, randomTakeover/4
	})
	c.e = election.New(c.p.Manager, name)
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	seed := s.r.Uint64()
	go func() {
		defer close(c.over)
		own := rand.New(rand.NewPCG(seed, 2))
		fn := func(ctx context.Context, l *election.Leadership) error { return s.lead(ctx, l, own) }
		_ = c.e.Run(ctx, fn, election.Backoff(backoff/10, backoff))
	}()
	s.w.t.Cleanup(func() {
		c.p.heal()
		c.cancel()
		<-c.over
	})
	s.candidates = append(s.candidates, c)
}

// lead is a function with random behavior.
func (s *scene) lead(ctx context.Context, l *election.Leadership, own *rand.Rand) error {
	s.mu.Lock()
	if l.Fence() <= s.fence {
		s.w.t.Errorf("fence %d after %d", l.Fence(), s.fence)
	}
	s.fence = l.Fence()
	for _, other := range s.running {
		if !errors.Is(other.Err(), distlock.ErrLockLost) {
			s.w.t.Errorf("fence %d leads while the function of %d runs: %v", l.Fence(), other.Fence(),
				other.Err())
		}
	}
	s.running[l.Fence()] = l
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, l.Fence())
	}()
	s.began[l.Fence()] = l.Process()
	s.tally.terms++
	s.leaders = append(s.leaders, l)
	s.trusted()
	s.mu.Unlock()
	var yield <-chan struct{}
	if own.IntN(3) > 0 {
		yield = l.YieldRequested()
	}
	tired := time.NewTimer(time.Duration(1+own.IntN(600)) * time.Second)
	defer tired.Stop()
	select {
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), distlock.ErrLockLost) {
			s.mu.Lock()
			s.tally.lost++
			s.mu.Unlock()
		}
		time.Sleep(time.Duration(own.Int64N(int64(windDown)))) // ignores its context for a while
		return ctx.Err()
	case <-yield:
		s.mu.Lock()
		if s.tally.yielded++; !s.asked[l.Fence()] {
			s.w.t.Errorf("fence %d was not asked to yield", l.Fence())
		}
		s.mu.Unlock()
	case <-tired.C:
	}
	switch own.IntN(4) {
	case 0:
		return errors.New("failed")
	case 1:
		panic("boom")
	}
	return nil
}

func (s *scene) any() *candidate { return s.candidates[s.r.IntN(len(s.candidates))] }

func (s *scene) step() {
	c := s.any()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.r.IntN(40))*time.Second)
	leading := s.leader()
	switch s.r.IntN(9) {
	case 0: // the process dies, and another process starts
		c.p.kill()
		c.cut = true
		s.mu.Lock()
		s.tally.died++
		s.mu.Unlock()
		c.cancel()
		s.leaves(c)
	case 1, 2: // the process is paused or continued
		if s.disturbed(); c.cut {
			c.p.heal()
		} else {
			c.p.kill()
		}
		c.cut = !c.cut
	case 3:
		if leading != nil {
			c = leading
		}
		go func() {
			defer cancel()
			_ = c.e.Resign(ctx)
		}()
		return
	case 4, 5, 6:
		if leading != nil {
			go func(to string) {
				defer cancel()
				s.handOver(ctx, leading, to)
			}(c.p.Process())
			return
		}
	case 7:
		synctest.Wait() // a term may end in this instant, and the next would get the request
		if s.w.mem.Document("locks", name) == nil || !s.w.lock().Held || c.cut {
			break
		}
		s.mu.Lock()
		s.asked[s.w.lock().Fence] = true // no virtual time passes in between
		s.mu.Unlock()
		if err := c.e.RequestYield(context.Background(), "x"); err != nil {
			s.w.t.Logf("request: %v", err)
		}
	case 8: // the candidate withdraws and queues again
		s.disturbed()
		if !c.cut {
			c.cancel()
			s.leaves(c)
		}
	}
	cancel()
}

// leader returns the candidate whose term is trusted.
func (s *scene) leader() *candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leaders {
		for _, c := range s.candidates {
			if l.Err() == nil && c.p.Process() == l.Process() {
				return c
			}
		}
	}
	return nil
}

func (s *scene) handOver(ctx context.Context, from *candidate, to string) {
	fence := s.w.lock().Fence
	err := from.e.Handover(ctx, to)
	now := s.w.lock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.tally.refused++
		return
	}
	s.tally.handed++
	led, ok := s.began[fence+1]
	if now.Fence == fence+1 && now.Process != to || ok && led != to {
		s.w.t.Errorf("fence %d was handed to %s, %s got it, %s leads", fence+1, to, now.Process, led)
	}
}

// leaves replaces a candidate that is gone.
func (s *scene) leaves(c *candidate) {
	s.candidates = slices.DeleteFunc(s.candidates, func(one *candidate) bool { return one == c })
	s.stand()
}
