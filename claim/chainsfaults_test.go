package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/test/fault"
)

// A host is a process that may be killed and stopped, and whose commands fail.
type host struct {
	*proc
	s *faults

	mu      sync.Mutex    // guards the rest
	dead    bool          // for good
	stopped chan struct{} // closed when it goes on; nil while it runs
}

// faults are what becomes of the commands of hosts.
type faults struct {
	over chan struct{}

	mu     sync.Mutex // guards the rest
	random *rand.Rand
	calm   bool // no more faults
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

func (h *host) isDead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

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

func (s *faults) below(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// next chooses what becomes of a command; most are carried out.
func (s *faults) next() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calm {
		return -1
	}
	return s.random.IntN(100)
}

// start starts a process whose commands take time, fail, lose their replies, or come late.
func (s *faults) start(w *world, cfg Config) *host {
	h := &host{s: s, proc: w.start(cfg)}
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
		switch s.next() {
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

// It tries to break: processes are killed, and stopped past their deadline, commands fail, lose
// their replies or are carried out up to half an hour late.
func TestChains_FaultsOfAllKinds_InOrder(t *testing.T) {
	for _, batch := range []int{1, 8} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			cfg := w.chained(false)
			cfg.Workers, cfg.Batch, cfg.MaxAttempts = 5, batch, 1000
			cfg.Backoff, cfg.BackoffMax = time.Second, time.Minute
			const keys, each = 40, 10
			w.addKeys(0, keysOf(keys, each, true)...)
			l := w.line()
			s := &faults{over: make(chan struct{}), random: rand.New(rand.NewPCG(uint64(batch), 0))}
			var hosts []*host
			var stops []func()
			for range 4 {
				h := s.start(w, cfg)
				hosts = append(hosts, h)
				stops = append(stops, h.run(t, func(_ context.Context, row *Row[item]) error {
					return l.work(row, h, func() error {
						time.Sleep(time.Duration(s.below(3000)) * time.Millisecond)
						if h.state() != nil {
							<-s.over
							return errCut
						}
						if s.below(20) == 0 {
							return errors.New("bad luck")
						}
						return nil
					})
				}))
			}
			time.Sleep(10 * time.Second)
			hosts[0].kill()
			time.Sleep(5 * time.Second)
			goOn := hosts[1].stop()
			time.Sleep(takeoverTime * 5 / 4)
			goOn()
			w.settle(6*time.Hour, allDone(keys*each))
			s.mu.Lock()
			s.calm = true
			s.mu.Unlock()
			time.Sleep(31 * time.Minute)
			close(s.over)
			for _, stop := range stops {
				stop()
			}
			l.want(t)
		})
	}
}
