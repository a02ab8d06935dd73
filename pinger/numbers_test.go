package pinger_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/pinger"
)

// twin sends a ping with the first id of the process, as a copy of the process would.
func (b *bundle) twin(t *testing.T, n int64) error {
	t.Helper()
	local := time.Now().Add(-time.Hour) // the twin's clock differs
	_, err := b.mem.Ping(context.Background(),
		catalog.Heartbeat{Process: "process-1", Seq: n, Local: local})
	return err
}

func (b *bundle) ping(t *testing.T) {
	t.Helper()
	assert.Must(t, b.p.Ping(t.Context()))
}

func (b *bundle) seq(t *testing.T) int64 {
	t.Helper()
	p, bad := catalog.ParsePing(b.mem.Document(catalog.PingsCollection, "process-1"))
	if bad != nil {
		t.Fatal(bad)
	}
	return p.Seq
}

// No ping number is sent twice. After a ping without a reply, the next ping has a new number. A new
// process id begins with 1.
func TestLockPinger_LostPings_NumbersRise(t *testing.T) { // I7
	t.Parallel()
	b := setup(t, nil)
	b.ping(t)
	term := b.p.Last()
	for name, hook := range map[string]func(apply func() error) error{
		"refused": func(func() error) error { return fault.Refused(fault.Ping) },
		"lost":    func(func() error) error { return fault.Lost(fault.Ping) },
		"carried out": func(apply func() error) error {
			return errors.Join(apply(), fault.Lost(fault.Ping))
		},
	} {
		b.store.Set(func(_ context.Context, _ fault.Call, apply func() error) error {
			return hook(apply)
		})
		before := b.seq(t)
		for range 2 {
			if err := b.p.Ping(t.Context()); err == nil {
				t.Errorf("%s: acknowledged", name)
			}
		}
		b.store.Set(nil)
		b.ping(t)
		if got := b.seq(t); got != before+3 {
			t.Errorf("%s twice, then a good ping: seq %d after %d, want three more", name, got, before)
		}
	}
	if b.p.Last() != term || term.Err() != nil {
		t.Fatalf("lost pings were taken for a twin: %v", term.Err())
	}
	b.mem.Remove(catalog.PingsCollection, "process-1")
	b.ping(t)
	p, bad := catalog.ParsePing(b.mem.Document(catalog.PingsCollection, "process-2"))
	if bad != nil || p.Seq != 1 {
		t.Errorf("the new id began with %+v, %v", p, bad)
	}
}

// If two processes have one id, the second one to ping gives the id up. It never removes the ping
// document, even when it closes.
func TestLockPinger_Twin_WhoeverPingsSecondGivesTheIDUp(t *testing.T) { // A12, H2
	t.Parallel()
	t.Run("the twin", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		for range 3 {
			b.ping(t)
		}
		assert.Is(t, b.twin(t, 3), catalog.ErrTwin)
		b.ping(t)
		if err := b.p.Last().Err(); err != nil || b.p.Last().Process() != "process-1" {
			t.Errorf("the first one's term: %v", err)
		}
	})
	t.Run("this process", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		b.ping(t)
		term := b.p.Last()
		assert.Must(t, b.twin(t, 2))
		document := b.mem.Document(catalog.PingsCollection, "process-1")
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Subject == "process-2" { // no new term begins, so Last stays the ended term
				return fault.Refused(call.Op)
			}
			return apply()
		})
		_ = b.p.Ping(t.Context())
		if err := term.Err(); !errors.Is(err, pinger.ErrForked) || !errors.Is(err, catalog.ErrTwin) {
			t.Errorf("own term: %v, want ErrForked by a twin", err)
		}
		b.close(t)
		if now := b.mem.Document(catalog.PingsCollection, "process-1"); !slices.Equal(document, now) {
			t.Errorf("the twin's document was touched:\nbefore %v\nafter  %v", document, now)
		}
	})
	t.Run("this process, after lost pings", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		b.ping(t)
		term := b.p.Last()
		b.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
			return fault.Lost(call.Op) // never carried out
		})
		for range 5 {
			_ = b.p.Ping(t.Context())
		}
		b.store.Set(nil)
		assert.Must(t, b.twin(t, 2))
		b.ping(t) // this ping has a larger number than the ping of the twin
		if err := term.Err(); !errors.Is(err, catalog.ErrTwin) || b.seq(t) != 2 {
			t.Errorf("own term: %v, want ErrTwin; seq %d, want the twin's 2", err, b.seq(t))
		}
	})
}

// After many unanswered pings, a process keeps its id if the store contains its last acknowledged
// ping or one of its last 63 sent pings. Otherwise the process gives the id up.
func TestLockPinger_ManyUnanswered_KnowsItsOwn(t *testing.T) {
	t.Parallel()
	const many = 100
	for name, c := range map[string]struct {
		carriedOut int // index of the ping that is carried out; -1 for none
		kept       bool
	}{
		"none": {-1, true}, "the last": {many - 1, true}, "a late one": {many - 63, true},
		"an early one": {many - 64, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bundle) {
				b.ping(t)
				term := b.p.Last()
				for n := range many {
					b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
						if n == c.carriedOut {
							return errors.Join(apply(), fault.Lost(call.Op))
						}
						return fault.Lost(call.Op)
					})
					time.Sleep(time.Millisecond)
					_ = b.p.Ping(t.Context())
				}
				b.store.Set(nil)
				time.Sleep(time.Millisecond)
				b.ping(t)
				if kept := term.Err() == nil; kept != c.kept {
					t.Errorf("kept: %v, want %v; %v", kept, c.kept, term.Err())
				}
			})
		})
	}
}
