package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// bench is a Recorder and its store, in virtual time.
type bench struct {
	*recorder
	t     *testing.T
	clock clock.Clock
	store *fault.Kept
	log   *assert.Log
}

func inBubble(t *testing.T, change func(*recorderConfig), test func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			t: t, clock: clock.System(), store: fault.WrapKept(memcatalog.New(memcatalog.Options{})),
			log: &assert.Log{},
		}
		cfg := recorderConfig{
			Store: b.store, Clock: b.clock, Log: zerolog.New(b.log), Least: time.Second,
			Keep: 24 * time.Hour, Most: 10_000, PruneEvery: time.Hour,
		}
		if change != nil {
			change(&cfg)
		}
		b.recorder = newRecorder(cfg, b.now())
		test(b)
	})
}

func (b *bench) now() instant {
	here := b.clock.Now()
	return instant{Server: here.Wall.Add(time.Minute), Here: here} // the server's clock is ahead
}

func (b *bench) batch() {
	b.t.Helper()
	assert.Must(b.t, b.recorder.flush(b.t.Context(), b.now()))
}

func (b *bench) entries() []catalog.HistoryEntry {
	b.t.Helper()
	b.store.Set(nil)
	var all []catalog.HistoryEntry
	for e, err := range b.store.ReadHistory(b.t.Context(), catalog.HistoryQuery{}) {
		assert.Must(b.t, err)
		all = append(all, e)
	}
	slices.Reverse(all)
	return all
}

// want checks what was written, oldest first, as "kind name".
func (b *bench) want(lines ...string) {
	b.t.Helper()
	var got []string
	for _, e := range b.entries() {
		got = append(got, strings.TrimSpace(e.Kind+" "+e.Name))
	}
	assert.Slices(b.t, lines, got, "entries\nwant %q\ngot  %q")
}

func entry(kind, name string) catalog.HistoryEntry {
	return catalog.HistoryEntry{Kind: kind,
		Session: catalog.Session{Name: name, TS: bson.ObjectID{11: name[0]}}}
}

// hold holds a lock for a while.
func (b *bench) hold(name string, d time.Duration) {
	b.acquired(entry("acquired", name), false)
	time.Sleep(d)
	b.end(name, d)
}

func (b *bench) end(name string, d time.Duration) {
	e := entry("released", name)
	e.Held = d
	b.ended(e, false)
}

// A lock that was held for less than a second leaves nothing and costs no command.
func TestRecorder_ShortHold_NoCommand(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		for range 3 {
			b.hold("a", time.Second-1)
			b.batch()
		}
		assert.Equal(t, b.store.Total(), 0, "%d commands, want %d")
	})
}

// Both ends of a longer one are written, whenever the batches are: before, between and after.
func TestRecorder_LongHold_BothEnds(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.hold("a", time.Second)
		b.batch()
		b.want("acquired a", "released a")
		b.acquired(entry("acquired", "b"), false)
		b.batch()
		b.want("acquired a", "released a")
		time.Sleep(time.Second)
		b.batch()
		b.want("acquired a", "released a", "acquired b")
		b.end("b", time.Second)
		b.batch()
		b.want("acquired a", "released a", "acquired b", "released b")
	})
}

// What is worth an entry whatever the time has both ends, too: a takeover, and the end of its
// holder.
func TestRecorder_WorthAnEntry_HoweverShort(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.acquired(entry("taken over", "a"), true)
		b.end("a", 0)
		b.acquired(entry("acquired", "b"), false)
		b.ended(entry("lost", "b"), true)
		b.happened(entry("broken", "c"))
		b.batch()
		if got := len(b.entries()); got != 5 || b.stats() != (Stats{Written: 5}) {
			t.Errorf("%d entries, counts %+v", got, b.stats())
		}
	})
}

func TestRecorder_LeastZero_Everything(t *testing.T) {
	inBubble(t, func(c *recorderConfig) { c.Least = 0 }, func(b *bench) {
		b.hold("a", time.Millisecond)
		b.batch()
		b.want("acquired a", "released a")
	})
}

// An entry tells when it happened by the server's clock, however late it is written.
func TestRecorder_At_ServersClock(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		before := b.now().Server
		b.happened(entry("broken", "a"))
		time.Sleep(time.Minute)
		now := b.now() // told, and a moment later written
		time.Sleep(time.Second)
		b.happened(entry("broken", "b"))
		assert.Must(t, b.flush(t.Context(), now))
		got := b.entries()
		if !got[0].At.Equal(before.Truncate(time.Millisecond)) ||
			got[1].At.Sub(got[0].At) != 61*time.Second {
			t.Errorf("%v and %v, the first happened at %v", got[0].At, got[1].At, before)
		}
	})
}

// A failed batch is kept and written by the next, each entry once: also one that was written, with
// its reply lost.
func TestRecorder_Failure_KeptAndWrittenOnce(t *testing.T) {
	for name, applied := range map[string]bool{"refused": false, "reply lost": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bench) {
				b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
					if call.Op != fault.AppendHistory {
						return apply()
					}
					if applied {
						_ = apply()
					}
					return fault.Lost(call.Op)
				})
				for i, name := range []string{"a", "b"} {
					b.happened(entry("broken", name))
					if err := b.flush(t.Context(), b.now()); err == nil {
						t.Error("no error")
					}
					if c := b.stats(); c.Failures != int64(i+1) || c.Written != 0 {
						t.Errorf("counts %+v", c)
					}
					time.Sleep(time.Second)
				}
				b.store.Set(nil)
				b.batch()
				b.want("broken a", "broken b")
				assert.Equal(t, b.stats(), (Stats{Written: 2, Failures: 2}), "counts %+v, want %+v")
			})
		})
	}
}

// However much happens while the server is away, the memory is bounded, the oldest go, and the next
// batch says how many: they and those that were written are all there were.
func TestRecorder_Flood_BoundedAndTold(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		const events = 3*buffer + 7
		b.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
			return fault.Refused(call.Op)
		})
		for n := range events {
			b.happened(entry("broken", fmt.Sprint(n)))
			if n%1500 == 0 {
				_ = b.flush(t.Context(), b.now())
			}
			time.Sleep(time.Millisecond)
		}
		b.store.Set(nil)
		b.batch()
		got := b.entries()
		missed := got[len(got)-1] // it tells of what came before it
		if slices.Reverse(got); missed.Kind != missedKind {
			t.Fatalf("last is %+v", missed)
		}
		if len(got)-1 != buffer || got[1].Name != fmt.Sprint(events-1) {
			t.Errorf("%d entries, the last is %s", len(got)-1, got[1].Name)
		}
		if c := b.stats(); missed.Missed != events-buffer || c.Missed != missed.Missed {
			t.Errorf("missed %d, counts %+v, want %d", missed.Missed, c, events-buffer)
		}
		b.happened(entry("broken", "a"))
		b.batch()
		if got := b.entries(); len(got) != buffer+2 {
			t.Errorf("%d entries: the count was told twice", len(got))
		}
	})
}

// Locks that are held and young are bounded, too.
func TestRecorder_ManyYoung_Bounded(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		for n := range buffer + 3 {
			e := entry("acquired", "a")
			e.TS = bson.ObjectID{10: byte(n >> 8), 11: byte(n)}
			b.acquired(e, false)
		}
		if c := b.stats(); c.Missed != 3 {
			t.Errorf("counts %+v", c)
		}
		time.Sleep(time.Second)
		b.batch()
		if got := b.entries(); len(got) != buffer+1 {
			t.Errorf("%d entries", len(got))
		}
	})
}

// A user that may not write is told once; nothing is kept, and nothing is sent any more.
func TestRecorder_NoPrivilege_OffAfterOneWarning(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.store.Set(func(context.Context, fault.Call, func() error) error {
			return &catalog.PrivilegeError{Namespace: "db.lockhistory", Action: "insert"}
		})
		for range 3 {
			b.hold("a", time.Minute)
			b.batch()
		}
		if n := b.store.Total(); n != 2 { // the indexes, and the first batch
			t.Errorf("%d commands", n)
		}
		if n := strings.Count(b.log.String(), "\n"); n != 1 ||
			!strings.Contains(b.log.String(), "history is off") {
			t.Errorf("%d warnings: %s", n, b.log)
		}
	})
}

// A user that may write, but neither make indexes nor delete, writes.
func TestRecorder_NoPrivilegeToPrune_Writes(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.AppendHistory {
				return apply()
			}
			return &catalog.PrivilegeError{Namespace: "db.lockhistory", Action: "remove"}
		})
		for _, name := range []string{"a", "b"} {
			b.hold(name, time.Minute)
			b.batch()
		}
		if n := b.store.Total(); n != 4 { // each once, and two batches
			t.Errorf("%d commands", n)
		}
		b.want("acquired a", "released a", "acquired b", "released b")
		if n := strings.Count(b.log.String(), "\n"); n != 2 {
			t.Errorf("%d warnings: %s", n, b.log)
		}
	})
}

// The number and the age of entries are bounded while somebody writes, without a command for each
// batch.
func TestRecorder_Prunes(t *testing.T) {
	inBubble(t, func(c *recorderConfig) { c.Most = 200 }, func(b *bench) {
		for n := range 300 {
			b.happened(entry("broken", fmt.Sprint(n)))
			if n%3 == 0 {
				b.batch()
				time.Sleep(time.Second)
			}
		}
		if got := len(b.entries()); got > 200+50 {
			t.Errorf("%d entries", got)
		}
		if n := b.store.Count(fault.PruneHistory); n > 1+300/50 {
			t.Errorf("pruned %d times", n)
		}
		time.Sleep(25 * time.Hour)
		b.happened(entry("broken", "last"))
		b.batch()
		b.want("broken last")
	})
}

// No text of a holder makes an entry large, and none is cut inside of a letter.
func TestRecorder_LongTexts_Cut(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		e := entry("lost", "a")
		e.Cause = "x" + strings.Repeat("é", maxText)
		b.happened(e)
		b.batch()
		if got := b.entries()[0].Cause; got != e.Cause[:maxText-1] {
			t.Errorf("%d bytes", len(got))
		}
	})
}
