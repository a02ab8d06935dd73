package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A snapshot makes a new process act as a copy of another process, as if its machine was restored
// from a snapshot. The copy pings under the id of the original process, with the next ping numbers,
// and holds the same lock. To do so, it replaces the process id and the session in each command.
type snapshot struct {
	catalog.Catalog
	of   catalog.Lock // at the time of the snapshot
	seq  int64        // of the last ping in the snapshot
	mu   sync.Mutex   // guards the fields below
	own  string       // the process id that stands for the original's id
	mine bson.ObjectID
}

// The clock of the copy is one hour behind. If the clocks were equal, the two processes could ping
// in the same millisecond, and neither would detect the other.
const behind = time.Hour

// restore starts a copy of the process that holds a guard. It returns the copy and the guard of the
// copy.
func (w *world) restore(from *distlock.TryGuard, change func(*distlock.Config)) (
	*proc, *distlock.TryGuard,
) {
	w.T.Helper()
	ping, bad := catalog.ParsePing(w.Mem.Document(catalog.PingsCollection, from.Process()))
	if bad != nil {
		w.T.Fatal(bad)
	}
	s := &snapshot{of: w.Lock(from.Name()), seq: ping.Seq}
	p := w.start(func(c *distlock.Config) {
		if change != nil {
			change(c)
		}
		s.Catalog, c.Catalog = c.Catalog, s
	})
	return p, p.MustTry(from.Name())
}

func (s *snapshot) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	s.mu.Lock()
	if s.own == "" {
		s.own = b.Process
	}
	same := s.own == b.Process
	s.mu.Unlock()
	if !same {
		return s.Catalog.Ping(ctx, b)
	}
	b.Process, b.Seq, b.Mine = s.of.Process, b.Seq+s.seq, slices.Clone(b.Mine)
	b.Local = b.Local.Add(-behind)
	for i := range b.Mine {
		b.Mine[i] = b.Mine[i].Add(-behind)
	}
	reply, err := s.Catalog.Ping(ctx, b)
	reply.Seq -= s.seq
	return reply, err
}

func (s *snapshot) stored(process string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if process == s.own {
		return s.of.Process
	}
	return process
}

func (s *snapshot) Apply(ctx context.Context, t catalog.Transition) (
	catalog.Lock, []catalog.Grant, error,
) {
	switch t := t.(type) {
	case transition.Enter:
		if stored := s.stored(t.Process); t.Name != s.of.Name || stored == t.Process {
			t.Process = stored
			return s.Catalog.Apply(ctx, t)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mine = t.TS
		l := s.of
		l.Process, l.TS = s.own, t.TS
		return l, nil, nil
	case transition.Leave:
		s.mu.Lock()
		if t.TS == s.mine {
			t.TS = s.of.TS
		}
		s.mu.Unlock()
		return s.Catalog.Apply(ctx, t)
	default:
		return s.Catalog.Apply(ctx, t)
	}
}

func (s *snapshot) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	sessions, err := s.Catalog.Held(ctx, s.stored(process))
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(sessions, func(h catalog.HeldSession) bool { return h.TS == s.of.TS })
	switch {
	case i >= 0 && s.mine.IsZero(): // the process has no guard yet
		sessions = slices.Delete(sessions, i, i+1)
	case i >= 0:
		sessions[i].TS = s.mine
	}
	return sessions, err
}

func (s *snapshot) Read(ctx context.Context, name string) (catalog.Lock, error) {
	l, err := s.Catalog.Read(ctx, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.TS == s.of.TS {
		l.TS = s.mine
	}
	if l.Process == s.of.Process {
		l.Process = s.own
	}
	return l, err
}

func (s *snapshot) ApplyPing(ctx context.Context, c catalog.PingChange) error {
	if remove, ok := c.(transition.RemovePing); ok {
		c = transition.RemovePing{Process: s.stored(remove.Process)}
	}
	return s.Catalog.ApplyPing(ctx, c)
}

// staysWith checks for the duration d that the holder's guard is valid and that another process
// cannot acquire the lock.
func (w *world) staysWith(holder *distlock.TryGuard, other *proc, d time.Duration) {
	w.T.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		assert.Must(w.T, holder.Err(), "the twin has lost its lock")
		if g, err := other.Try(holder.Name()); err == nil {
			w.T.Fatalf("fence %d acquired (%q) while fence %d is trusted", g.Fence(), g.TakeoverEvidence(),
				holder.Fence())
		}
	}
}

func often(c *distlock.Config) {
	c.Ping, c.Takeover, c.Margin = 5*time.Second, time.Minute, 15*time.Second
}

func releaseWhenLost(g *distlock.TryGuard) {
	go func() { // ends with the guard
		<-g.Context().Done()
		_ = g.Release()
	}()
}

// The returned hook applies the given operations 4 s late.
func slowly(ops ...fault.Op) fault.Hook {
	return func(ctx context.Context, call fault.Call, apply func() error) error {
		if slices.Contains(ops, call.Op) {
			select {
			case <-time.After(4 * time.Second):
			case <-ctx.Done():
				return fault.Refused(call.Op)
			}
		}
		return apply()
	}
}

// A twin is a copy of a process that runs at the same time under the same process id. If a process
// finds a twin while its own reads are slow, it releases no session of the twin. Each read takes 4
// s, so the work after one ping still runs when a later ping finds the twin.
func TestTwin_SlowChoresOfTheOldOne_FreeNothing(t *testing.T) { // A12, H7
	for phase := range 10 {
		runInBubble(t, fmt.Sprint(phase), func(t *testing.T, w *world) {
			old, third := w.start(often), w.start(often)
			g := old.MustTry("a")
			old.Store.Set(slowly(fault.Held, fault.Hello))
			releaseWhenLost(g)
			time.Sleep(20*time.Second + time.Duration(phase)*time.Second)
			_, kept := w.restore(g, often)
			w.staysWith(kept, third, 2*time.Minute)
			wantErr(t, g.Err(), catalog.ErrTwin)
			assert.NoErr(t, old.Close(t.Context()), "close")
			w.staysWith(kept, third, time.Minute)
		})
	}
}

// A process was suspended beyond its deadline while a copy with the same process id runs. The
// process releases no session of the copy, neither by Release nor by Close.
func TestTwin_WakesAfterItsDeadline_FreesNothing(t *testing.T) { // A12
	for name, wake := range map[string]func(*proc, *distlock.TryGuard){
		"its user releases": func(_ *proc, g *distlock.TryGuard) { _ = g.Release() },
		"it is closed":      func(p *proc, _ *distlock.TryGuard) { _ = p.Close(context.Background()) },
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			old, third := w.start(often), w.start(often)
			g := old.MustTry("a")
			suspended := make(chan struct{})
			old.Store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
				if call.Op == fault.Ping {
					select {
					case <-suspended:
					case <-ctx.Done():
						return fault.Refused(call.Op)
					}
				}
				return apply()
			})
			_, kept := w.restore(g, often)
			time.Sleep(50 * time.Second)
			wantErr(t, g.Err(), distlock.ErrLockLost)
			go wake(old, g)
			w.staysWith(kept, third, 30*time.Second)
			close(suspended)
			w.staysWith(kept, third, 2*time.Minute)
		})
	}
}

// If a process finds a copy with the same process id while it repeats a release, Release returns
// ErrLockLost.
func TestTwin_FoundDuringTheRelease_SaysLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old, third := w.start(often), w.start(often)
		g := old.MustTry("a")
		_, kept := w.restore(g, often)
		old.Store.Set(fault.Refusing(fault.Release))
		err := g.Release()
		wantErr(t, err, distlock.ErrLockLost)
		wantErr(t, err, catalog.ErrTwin)
		if errors.Is(err, distlock.ErrReleaseFailed) {
			t.Errorf("it says that the release continues: %v", err)
		}
		old.Store.Set(nil)
		w.staysWith(kept, third, time.Minute)
		assert.Equal(t, old.Stats().Late, 0, "%d late releases, want %d")
	})
}
