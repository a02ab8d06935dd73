package history

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

var errAway = errors.New("the server is away")

// A bench wraps a Log. It stores the inserted entries in a slice.
type bench struct {
	*Log
	t    *testing.T
	text assert.Log

	mu      sync.Mutex // guards the fields below
	refuse  func(context.Context) error
	entries []Entry
	inserts int
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t}
		var err error
		b.Log, err = New(new(mongo.Client), "db", Options{Logger: zerolog.New(&b.text)})
		assert.Must(t, err)
		b.insert = b.receive
		test(t, b)
	})
}

// If refuse is not nil, each insert calls it and fails with its error.
func (b *bench) set(refuse func(context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

func (b *bench) receive(ctx context.Context, entries []Entry) error {
	b.mu.Lock()
	refuse := b.refuse
	b.inserts++
	b.mu.Unlock()
	if refuse != nil {
		if err := refuse(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, entries...)
	return nil
}

func away(context.Context) error { return errAway }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Observe gets n events with the fences 1 to n, and must not block.
func (b *bench) happen(n int) {
	b.t.Helper()
	begun := time.Now()
	for i := range n {
		b.Observe(distlock.Event{Kind: distlock.EventAcquired, At: begun, Name: "a", Fence: int64(i) + 1})
	}
	if took := time.Since(begun); took != 0 {
		b.t.Errorf("Observe took %v", took)
	}
}

// The Log must have inserted one entry for each of the fences 1 to n, in order.
func (b *bench) want(n int) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.entries) != n {
		b.t.Fatalf("%d entries are inserted, want %d", len(b.entries), n)
	}
	for i, e := range b.entries {
		if e.Fence != int64(i)+1 || e.ID.IsZero() || e.Name != "a" || e.Kind != "acquired" {
			b.t.Fatalf("entry %d is %+v", i, e)
		}
	}
}

func (b *bench) warnings() int { return strings.Count(b.text.String(), `"level":"warn"`) }

// A Log inserts the events of one second with one command. A Log without events has no goroutine
// and sends no command.
func TestLog_EventsOfASecond_OneInsert(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		time.Sleep(time.Hour)
		b.happen(100)
		time.Sleep(gather * 9 / 10)
		for fence := range int64(200) {
			b.Observe(distlock.Event{Kind: distlock.EventAcquired, Name: "a", Fence: 101 + fence})
		}
		b.want(0)
		time.Sleep(gather / 10)
		b.want(300)
		time.Sleep(time.Hour)
		assert.Equal(b.t, b.inserts, 1, "%d inserts, want %d")
		b.Observe(distlock.Event{Kind: distlock.EventRefused, Name: "a"})
		b.Observe(distlock.Event{Kind: distlock.EventPing})
		time.Sleep(gather)
		b.want(300) // the bubble fails if a goroutine is left
	})
}

// If the server fails or hangs, Observe does not block. The Log keeps 2,000 entries and counts the
// rest as dropped. When the server is back, the Log inserts the entries that it kept. Otherwise
// Close returns an error, at the latest when its context ends.
func TestLog_ServerAway_BoundedCountedAndWrittenLater(t *testing.T) {
	for name, refuse := range map[string]func(context.Context) error{
		"fails": away,
		"hangs": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return hang(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.set(refuse)
				b.happen(buffer + 7)
				time.Sleep(time.Minute)
				b.want(0)
				assert.Equal(t, b.Dropped(), 7, "%d dropped, want %d")
				if b.inserts < 2 {
					t.Errorf("%d inserts in a minute", b.inserts)
				}
				assert.Equal(t, b.warnings(), 1, "%d warnings, want %d")
				b.set(nil)
				time.Sleep(timeout + retry)
				b.want(buffer)
				b.set(away)
				b.happen(1)
				time.Sleep(time.Minute)
				assert.Equal(t, b.warnings(), 2, "%d warnings of two episodes, want %d")
				b.set(refuse)
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := b.Close(ctx); err == nil || time.Since(begun) > time.Second {
					t.Errorf("Close took %v: %v", time.Since(begun), err)
				}
			})
		})
	}
}

// Close inserts the remaining entries immediately. Events after Close are dropped.
func TestLog_Close_InsertsTheRest(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"at work": nil, "after a failure": away, "while an insert hangs": hang,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.set(before)
				b.happen(5)
				if before != nil {
					time.Sleep(gather + time.Millisecond)
				}
				b.set(nil)
				begun := time.Now()
				assert.NoErr(t, b.Close(t.Context()))
				assert.Equal(t, time.Since(begun), 0, "Close took %v, want %v")
				b.want(5)
				b.Observe(distlock.Event{Kind: distlock.EventLost, Name: "a"})
				assert.Equal(t, b.Dropped(), 1, "%d dropped, want %d")
				assert.NoErr(t, b.Close(t.Context()))
				time.Sleep(time.Minute)
				b.want(5)
			})
		})
	}
}

// An entry contains the data of its event. Only the entry of an acquisition contains the waiting
// time. A long error text is cut to at most 1,024 bytes of valid UTF-8.
func TestLog_Observe_EntryOfAnEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		lost := &distlock.LostError{Cause: errors.New("x" + strings.Repeat("é", 5000))}
		at := time.Now().UTC()
		b.Observe(distlock.Event{Kind: distlock.EventPing, At: at, Skew: time.Hour})
		for _, kind := range []distlock.EventKind{distlock.EventTakenOver, distlock.EventReleased,
			distlock.EventLost, distlock.EventDropped, distlock.EventBroken, distlock.EventEvicted} {
			e := distlock.Event{Kind: kind, At: at, Name: "a", Process: "p", Previous: "q", Fence: 7,
				Mode: "shared", Label: "election", Why: "w", Rule: "watch", Evidence: "e",
				Waited: 2 * time.Second, Held: 3 * time.Second}
			if kind == distlock.EventLost {
				e.Err = lost
			}
			b.Observe(e)
		}
		assert.NoErr(t, b.Close(t.Context()))
		var kinds []string
		for _, e := range b.entries {
			kinds = append(kinds, e.Kind)
			want := Entry{ID: e.ID, At: at.Add(time.Hour), Kind: e.Kind, Name: "a", Process: "p",
				Previous: "q", Fence: 7, Mode: "shared", Label: "election", Why: "w", Rule: "watch",
				Evidence: "e", HeldMS: 3000}
			switch e.Kind {
			case "taken over":
				want.WaitedMS = 2000
			case "lost":
				want.Cause = e.Cause
				if len(e.Cause) < 1000 || len(e.Cause) > 1024 || !utf8.ValidString(e.Cause) {
					t.Errorf("the cause has %d bytes", len(e.Cause))
				}
			}
			assert.Equal(t, e, want, "got  %+v\nwant %+v")
		}
		want := []string{"taken over", "released", "lost", "dropped", "broken", "evicted"}
		assert.Slices(t, kinds, want, "kinds %q, want %q")
	})
}

// A Log records the events of a Manager with the time of the server. While the Log cannot insert,
// no call of the Manager is delayed.
func TestLog_OfAManager_RecordsAndDelaysNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.set(away)
		ahead := memcatalog.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }}
		m := assert.Value(distlock.New(t.Context(), distlock.Config{
			Catalog: memcatalog.New(ahead), Observer: b.Log}))(t)
		time.Sleep(2 * time.Minute) // until some pings were sent
		begun := time.Now()
		g := assert.Value(m.Lock("a").TryLock(t.Context(), distlock.Why("nightly")))(t)
		time.Sleep(time.Minute)
		assert.NoErr(t, g.Release())
		assert.Equal(t, time.Since(begun), time.Minute, "it took %v, want %v")
		b.set(nil)
		assert.NoErr(t, m.Close(t.Context()))
		assert.NoErr(t, b.Close(t.Context()))
		if len(b.entries) != 2 {
			t.Fatalf("%+v", b.entries)
		}
		for i, e := range b.entries {
			skew := e.At.Sub(begun.Add(time.Duration(i) * time.Minute)).Round(time.Second)
			if e.Kind != []string{"acquired", "released"}[i] || e.Why != "nightly" || skew != time.Hour ||
				e.Session != g.Session() || e.Process != m.Process() || e.Mode != "exclusive" {
				t.Errorf("%v ahead: %+v", skew, e)
			}
		}
	})
}

func TestNew_BadOptions_AreRefused(t *testing.T) {
	t.Parallel()
	client := new(mongo.Client)
	for _, err := range []error{
		assert.Err(New(nil, "db", Options{})), assert.Err(New(client, "", Options{})),
		assert.Err(New(client, "db", Options{Keep: time.Second})),
		assert.Err(New(client, "db", Options{Keep: 87601 * time.Hour})),
	} {
		assert.Is(t, err, distlock.ErrConfig)
	}
	assert.NoErr(t, assert.Err(New(client, "db", Options{Keep: time.Minute})))
}
