package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// A process with 2,000 held locks sends at most three commands per ping interval and needs no
// additional goroutine.
func TestManager_ManyLocks_OnePingNoGoroutine(t *testing.T) { // J4
	inBubbleAlone(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		before := goroutines()
		for i := range 2000 {
			p.MustTry(fmt.Sprint("lock ", i))
		}
		synctest.Wait()
		if after := goroutines(); after > before {
			t.Errorf("%d goroutines more for 2,000 locks", after-before)
		}
		pings, total := p.Store.Count(fault.Ping), p.Store.Total()
		time.Sleep(10 * pingTime)
		synctest.Wait()
		pings, total = p.Store.Count(fault.Ping)-pings, p.Store.Total()-total
		if pings < 9 || pings > 12 {
			t.Errorf("%d pings in ten intervals", pings)
		}
		if total > 3*pings+1 { // one ping, one read and one hello an interval
			t.Errorf("%d commands for %d pings", total, pings)
		}
	})
}

// Close ends all guards with ErrClosed, releases all locks and deletes the ping document of the
// process.
func TestClose_ReleasesAll_RemovesThePing(t *testing.T) { // K1
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		var guards []*distlock.TryGuard
		for i := range 100 {
			guards = append(guards, p.MustTry(fmt.Sprint(i)))
		}
		id := p.Process()
		assert.Must(t, p.Close(t.Context()))
		for i, g := range guards {
			wantErr(t, g.Err(), distlock.ErrClosed)
			wantErr(t, context.Cause(g.Context()), distlock.ErrClosed)
			if w.Lock(fmt.Sprint(i)).Held {
				t.Fatalf("lock %d is still held", i)
			}
		}
		if w.Mem.Document(catalog.PingsCollection, id) != nil {
			t.Error("the ping document is still there")
		}
		wantErr(t, assert.Err(p.Try("x")), distlock.ErrClosed)
		assert.NoErr(t, p.Close(t.Context()), "second close")
		wantErr(t, guards[0].Release(), distlock.ErrClosed) // the work may have run after Close
	})
}

// One release fails while Close runs. Close tries it once more, and leaves nothing in the lock.
// Calls that wait return ErrClosed.
func TestClose_OneReleaseFails_IsTriedAgain(t *testing.T) { // K3
	for _, what := range []string{"held", "queued", "being acquired"} {
		runInBubble(t, what, func(t *testing.T, w *world) {
			p, other := w.start(nil), w.start(nil)
			var g *distlock.TryGuard
			var call <-chan turn
			switch what {
			case "held":
				p.MustTry("a")
			case "queued":
				g = other.MustTry("a")
				call = p.queue("a")
			case "being acquired":
				p.Store.Set(fault.Slow(time.Second, time.Second, fault.Enter))
				call = p.queue("a")
			}
			slow, sent := fault.Slow(time.Second, time.Second, fault.Enter), 0
			p.Store.Set(func(ctx context.Context, c fault.Call, apply func() error) error {
				if c.Op != fault.Release {
					return slow(ctx, c, apply)
				}
				time.Sleep(10 * time.Millisecond)
				if sent++; sent == 1 {
					return fault.Refused(c.Op)
				}
				return apply()
			})
			assert.NoErr(t, p.Close(t.Context()))
			if call != nil {
				wantErr(t, (<-call).err, distlock.ErrClosed)
			}
			if g != nil {
				assert.Equal(t, len(w.Lock("a").Waiters), 0, "%d entries stay queued, want %d")
				w.release(g)
			}
			w.wantFree("a")
		})
	}
}

// If Close cannot release a lock, it leaves the ping document. So the lock is taken over as after a
// crash, even by processes that live for seconds. In the second case the lock is acquired by a
// command with an unknown outcome, and Close cannot read whether the lock is held.
func TestClose_LockStaysHeld_PingStays(t *testing.T) {
	late := func(_ context.Context, c fault.Call, apply func() error) error {
		switch c.Op {
		case fault.Acquire:
			go func() {
				time.Sleep(time.Second)
				_ = apply()
			}()
			return fault.Lost(c.Op)
		case fault.Held:
			return fault.Refused(c.Op)
		}
		return apply()
	}
	for name, hook := range map[string]fault.Hook{"release": fault.Refusing(fault.Release), "late": late} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			if name == "release" {
				p.MustTry("a")
			}
			p.Store.Set(hook)
			if name == "late" {
				wantErr(t, assert.Err(p.Try("a")), distlock.ErrOutcomeUnknown)
				time.Sleep(2 * time.Second)
			}
			if p.Close(t.Context()) == nil || !w.Lock("a").Held {
				t.Error("Close reports no lock that stays held")
			}
			for range 3 {
				time.Sleep(24 * time.Hour)
				job := w.start(nil)
				g, err := job.Lock("a").Lock(t.Context(), distlock.WaitAtMost(20*time.Second))
				if err == nil {
					w.release(g)
				}
				assert.Must(t, job.Close(t.Context()))
				if err == nil {
					return
				}
			}
			t.Error("the lock was not taken over in three days")
		})
	}
}

// Close removes the ping document even if a ping is on its way to the server.
func TestClose_PingUnderWay_LeavesNoPing(t *testing.T) { // K1
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		sent := make(chan struct{}, 1)
		p.Store.Set(fault.On(fault.Ping, func(apply func() error) error {
			sent <- struct{}{}
			time.Sleep(time.Second)
			return apply()
		}))
		<-sent
		id := p.Process()
		assert.NoErr(t, p.Close(t.Context()))
		time.Sleep(time.Minute)
		if ping := w.Mem.Document(catalog.PingsCollection, id); ping != nil {
			t.Errorf("the ping document is %s", ping)
		}
	})
}

// New refuses a host name with control characters, because the host name is part of the process id.
func TestConfig_HostOfSeveralLines_IsRefused(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"two\nlines", "tail\n", "\r", "a\tb"} {
		_, err := distlock.New(t.Context(),
			distlock.Config{Catalog: memcatalog.New(memcatalog.Options{}), Host: host})
		var bad *distlock.ConfigError
		if !errors.As(err, &bad) || len(bad.Problems) != 1 ||
			!strings.HasPrefix(bad.Problems[0], "Host contains ") ||
			!strings.Contains(bad.Problems[0], "remove it") {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// Validate reports all contradictions in a Config together and names the fields.
func TestConfig_Contradictions_AllAtOnce(t *testing.T) {
	t.Parallel()
	err := distlock.Config{
		Ping: time.Hour, Takeover: time.Minute, Margin: 2 * time.Minute,
		CommandTimeout: -1, Database: "a.b", URI: "mongodb://u:secret@h/",
		Tuning: distlock.Tuning{ReleaseTries: -1, TakeoverRule: 7, MaxClockSkew: time.Minute},
	}.Validate()
	var config *distlock.ConfigError
	if !errors.As(err, &config) || !errors.Is(err, distlock.ErrConfig) {
		t.Fatalf("error is %v", err)
	}
	for _, field := range []string{
		"Margin", "ReleaseTries", "CommandTimeout", "Database", "TakeoverRule", "MaxClockSkew",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the password is in the error")
	}
	err = distlock.Config{URI: "mongodb://h/", Ping: 10 * time.Second,
		Takeover: 30 * time.Second}.Validate()
	if err == nil || !strings.Contains(err.Error(), "Ping") {
		t.Errorf("Ping*3 > Takeover-Margin: %v", err)
	}
	short := distlock.Config{URI: "mongodb://h/", Margin: 20 * time.Second}
	assert.NoErr(t, short.Validate(), "the default of MaxClockSkew is at most Margin")
	short.MaxClockSkew = 30 * time.Second
	if err := short.Validate(); err == nil || !strings.Contains(err.Error(), "MaxClockSkew (30s)") {
		t.Errorf("a margin below the tolerated skew: %v", err)
	}
	short.TakeoverRule = takeover.WatchOnly
	assert.NoErr(t, short.Validate())
	if err := (distlock.Config{}).Validate(); err == nil || !strings.Contains(err.Error(), "URI") {
		t.Errorf("no connection: %v", err)
	}
	for _, d := range []time.Duration{-1, 1<<63 - 1} {
		if err := (distlock.Config{URI: "mongodb://h/", Takeover: d, Ping: d}).Validate(); err == nil {
			t.Errorf("timing of %v was accepted", d)
		}
	}
}

// For a malformed connection string, New returns a ConfigError. No error of New contains the
// password.
func TestNew_BadURI_NoPasswordInTheError(t *testing.T) { // G11
	t.Parallel()
	for uri, malformed := range map[string]bool{
		"mongodb://user:s3cr%zzet@host/": true, "s3cret": true, "mongodb://": true,
		"mongodb://user:s3cret@host:port/": true, "mongo://host": true, "host:27017": true,
		"http://user:s3cret@host/": true, "mongodb://user:s3cret@h/?authMechanism=NO": true,
		"mongodb://u:s3cr/et@@host/": true, "mongodb+srv://user:s3cret@": false,
		"mongodb://user:s3cret?x@host/?w=bad": false,
	} {
		_, err := distlock.New(t.Context(),
			distlock.Config{URI: uri, CommandTimeout: 50 * time.Millisecond})
		var bad *distlock.ConfigError
		if err == nil || malformed && (!errors.As(err, &bad) || !errors.Is(err, distlock.ErrConfig) ||
			errors.Is(err, distlock.ErrUnavailable) || strings.Count(err.Error(), "distlock: ") != 1) {
			t.Errorf("%s: %v", uri, err)
		}
		if strings.Contains(fmt.Sprint(err), "s3cr") {
			t.Errorf("the password is in %q", err)
		}
	}
}

// If PruneLocks is set, a process deletes the documents of locks that have been free for days. The
// next fence of a deleted lock is still larger.
func TestPruneLocks_FreeAndOld_AreDeleted(t *testing.T) {
	for _, on := range []bool{true, false} {
		runInBubble(t, fmt.Sprint(on), func(t *testing.T, w *world) {
			p := w.start(func(c *distlock.Config) {
				c.PruneLocks, c.Ping, c.Takeover = on, 10*time.Minute, time.Hour
			})
			fences := map[string]int64{}
			for i := range 50 {
				name := fmt.Sprint("order ", i)
				g := p.MustTry(name)
				fences[name] = g.Fence()
				w.release(g)
			}
			p.MustTry("held")
			time.Sleep(3 * 24 * time.Hour)
			w.release(p.MustTry("young"))
			time.Sleep(30 * time.Hour)
			left := len(w.Mem.Documents(catalog.LocksCollection))
			if want := map[bool]int{true: 2, false: 52}[on]; left != want {
				t.Errorf("%d documents are left, want %d", left, want)
			}
			for name, fence := range fences {
				if g := p.MustTry(name); g.Fence() <= fence {
					t.Errorf("%s has fence %d after %d", name, g.Fence(), fence)
				}
			}
		})
	}
}
