package claim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/memrows"
)

// itemCommands are the commands that claim rows or end claims.
var itemCommands = []string{"claim", "end", "current", "first", "held", "later"}

type ages struct {
	mu   sync.Mutex
	born map[int]time.Time
	late []time.Duration
}

// tenASecond inserts ten rows a second while the processes are idle. It returns the number of
// commands per row. It also returns the sorted delays with which the handlers begin.
func tenASecond(t *testing.T, w *world, processes, n int, due bool) (each float64,
	late []time.Duration) {
	a := &ages{born: map[int]time.Time{}}
	var procs []*proc
	cfg := Config{Workers: 2}
	if due {
		w.rows = memrows.New(rows.Options{Due: "execute_at"})
		cfg.Due = "execute_at"
	}
	var done atomic.Int64
	for range processes {
		p := w.start(cfg)
		p.gate.Set(func(_ context.Context, _ string, apply func() error) error {
			time.Sleep(rand.N(5 * time.Millisecond))
			err := apply()
			time.Sleep(rand.N(5 * time.Millisecond))
			return err
		})
		p.gate.late = 5 * time.Millisecond
		p.run(t, func(_ context.Context, row *Row[item]) error {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.late = append(a.late, time.Since(a.born[row.Doc.ID]))
			done.Add(1)
			return nil
		})
		procs = append(procs, p)
	}
	time.Sleep(time.Minute)
	sent := func() (n int) {
		for _, p := range procs {
			n += p.gate.Sent(itemCommands...)
		}
		return n
	}
	total := int64(0)
	add := func(from, n int) {
		total += int64(n)
		start := time.Now()
		for i := range n {
			at := start.Add(time.Duration(i) * 100 * time.Millisecond)
			doc := item{ID: from + i}
			if due {
				at = at.Add(20 * time.Second)
				doc.Due = at
			}
			a.mu.Lock()
			a.born[from+i] = at
			a.mu.Unlock()
			if !due {
				time.Sleep(time.Until(at))
			}
			_ = w.rows.Insert(t.Context(), []any{doc})
		}
		for done.Load() < total {
			time.Sleep(100 * time.Millisecond)
		}
	}
	add(n, 2*n) // lets the processes adapt their spreads
	before := sent()
	a.mu.Lock()
	a.late = nil
	a.mu.Unlock()
	add(0, n)
	slices.Sort(a.late)
	return float64(sent()-before) / float64(n), a.late
}

// If ten rows a second are inserted, a row costs at most 2.1 commands, or 2.3 with a hundred idle
// processes. At least 99 % of the handlers begin within a second.
func TestRun_IdleProcesses_CommandsAnItem(t *testing.T) { idleProcesses(t, false, 1, 20, 100) }

// A row with a due time costs no more commands than a row without one. Its handler does not begin
// before the due time.
func TestDue_IdleProcesses_CommandsAnItem(t *testing.T) { idleProcesses(t, true, 1, 20) }

func idleProcesses(t *testing.T, due bool, numbers ...int) {
	t.Parallel()
	for _, processes := range numbers {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				each, late := tenASecond(t, w, processes, 1000, due)
				last := late[len(late)*99/100]
				t.Logf("%d processes: %.2f commands per row, begun after %v, %v", processes, each,
					late[len(late)/2], last)
				if most := 2.1 + float64(processes)/500; each > most {
					t.Errorf("%.2f commands per row", each)
				}
				if late[0] < 0 || last > time.Second && !due {
					t.Errorf("rows begin %v to %v after they are due", late[0], last)
				}
			})
		})
	}
}

// A server is a simulated server that carries out one command at a time, in order. It carries out a
// command even if the caller has given up.
type server struct {
	each time.Duration
	mu   sync.Mutex
	free time.Time // when the last command is done
	n    map[string]int
}

func (s *server) serve(ctx context.Context, name string, apply func() error) error {
	s.mu.Lock()
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.each)
	at := s.free
	s.n[name]++
	s.mu.Unlock()
	result := make(chan error, 1)
	time.AfterFunc(time.Until(at), func() { result <- apply() })
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", catalog.ErrUnknownOutcome, ctx.Err())
	}
}

// A hundred processes finish 500 rows although they overload the server. They need at most twice
// the server time of the claims and ends. If the server also stores the locks, they need at most
// twelve times the server time of the claims and ends.
func TestRun_OverloadedServer_FinishesRows(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{20, 60} {
		for _, all := range []bool{false, true} {
			each := each * time.Millisecond
			t.Run(fmt.Sprint(each, all), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) { overload(t, w, each, all) })
			})
		}
	}
}

func overload(t *testing.T, w *world, each time.Duration, all bool) {
	const n = 500
	w.add(0, n)
	s := &server{each: each, n: map[string]int{}}
	began := time.Now()
	for range 100 {
		p := w.start(Config{})
		p.gate.Set(func(ctx context.Context, name string, apply func() error) error {
			return s.serve(ctx, name, apply)
		})
		if all {
			p.m.Store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
				return s.serve(ctx, string(call.Op), apply)
			})
		}
		p.run(t, finish)
	}
	w.settle(30*time.Minute, allDone(n))
	took, ideal := time.Since(began), 2*n*each
	most := 2 * ideal
	if all {
		most *= 6
	}
	s.mu.Lock()
	t.Logf("%v a command: %d rows in %v, ideal %v, %v", each, n, took, ideal, s.n)
	s.mu.Unlock()
	if took > most {
		t.Errorf("%d rows took %v, want %v at most", n, took, most)
	}
}

// The workers of a process claim a burst of rows side by side, with and without a change stream.
func TestRun_Burst_WorkersClaimSideBySide(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("no stream ", deaf), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				const n, each = 1500, 20 * time.Millisecond
				p := w.start(Config{Workers: 16})
				p.gate.deaf = deaf
				p.gate.Set(func(_ context.Context, _ string, apply func() error) error {
					time.Sleep(each)
					return apply()
				})
				p.run(t, finish)
				time.Sleep(time.Minute)
				began := time.Now()
				w.add(0, n)
				w.settle(time.Hour, allDone(n))
				if took := time.Since(began); took > n*each/4 {
					t.Errorf("%d rows took %v", n, took)
				}
			})
		})
	}
}
