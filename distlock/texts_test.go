package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// An acquisition's error is one sentence without repetitions, and contains the number of held
// permits.
func TestErrors_OfAcquiring_SayEachThingOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, l := w.start(nil), w.start(nil), w.start(nil)
		a.mustTry("held", distlock.Why("night run"))
		a.mustTry("read", distlock.Shared())
		l.mustTry("read", distlock.Shared())
		for range 2 {
			a.mustTry("permits", distlock.Permits(2), distlock.Why("load"))
		}
		a.mustTry("full")
		defer w.fill(l, "full")()
		a.mustTry("left")
		defer w.stand(l, "left", 1, []distlock.Option{distlock.Why("next")})()
		within := func(d time.Duration, name string, opts ...distlock.Option) error {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			_, err := b.Lock(name).Lock(ctx, opts...)
			return err
		}
		first := b.queue("full", distlock.WaitAtMost(time.Minute))
		closed := w.start(nil)
		_ = closed.Close(context.Background())
		_, errClosed := closed.try("held")
		_, errHeld := b.try("held")
		_, errPermits := b.try("permits", distlock.Permits(2))
		_, errLimit := b.try("permits", distlock.Permits(3))
		_, errRead := b.try("read")
		w.rewrite("left", map[string]any{"state": int32(0)})
		_, errLeft := b.try("left")
		silent := func() error {
			b.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
				return fault.Refused(call.Op)
			})
			defer b.store.Set(nil)
			return within(10*time.Second, "held")
		}
		for name, c := range map[string]struct {
			err  error
			want string
		}{
			"held": {errHeld, `acquire "held": held by A, "night run", since D: it pinged `},
			"inside the line": {within(10*time.Second, "held"), `acquire "held": context deadline ` +
				`exceeded while waiting: held by A, "night run", since D: it`},
			"outside of it": {within(10*time.Second, "full"), `acquire "full": context deadline ` +
				`exceeded while waiting: held by A, since D: it`},
			"full line": {(<-first).err, `acquire "full": held by A, since D: it`},
			"permits": {errPermits, `acquire "permits": 2 of 2 permits are held, one by A, "load", ` +
				`since D: it`},
			"readers":   {errRead, `acquire "read": held by 2 sharers, one is A, since D: it`},
			"left free": {errLeft, `acquire "left": free, but the next is L, "next", since D: it`},
			"another limit": {errLimit, `lock "permits" is in use as a semaphore of 2 permits, not ` +
				`as a semaphore of 3 permits; all who use it at a time must ask for the same; ` +
				`2 of 2 permits are held, one by A`},
			"closed": {errClosed, `acquire "held": closed`},
			"no server": {silent(),
				`acquire "held": context deadline exceeded while waiting: enter: refused on purpose`},
		} {
			text := strings.ReplaceAll(c.err.Error(), a.Process(), "A")
			text = strings.ReplaceAll(text, l.Process(), "L")
			if _, rest, ok := strings.Cut(text, ", since "); ok {
				stamp, _, _ := strings.Cut(rest, ": ")
				text = strings.ReplaceAll(text, stamp, "D")
			}
			if !strings.HasPrefix(text, "distlock: "+c.want) {
				t.Errorf("%s:\nwant %s...\ngot  %s", name, c.want, text)
			}
			for _, once := range []string{
				"acquire \"", "while waiting", "deadline exceeded", a.Process(), "distlock: ",
			} {
				if n := strings.Count(c.err.Error(), once); n > 1 {
					t.Errorf("%s: %q stands %d times in\n%s", name, once, n, c.err)
				}
			}
		}
		w.rewrite("left", map[string]any{"state": int32(1)})
	})
}

// A closed Manager's error contains the name of the package once.
func TestErrors_OfAClosedManager_SayDistlockOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a", distlock.Lease(lifeTime))
		mismatch := p.Break(t.Context(), "a", g.Fence()+1, "why")
		inside := g.InTransaction(t.Context(),
			func(context.Context) error { return g.Renew(t.Context()) })
		assert.Must(t, p.Close(t.Context()))
		_, holder := p.Lock("a").Holder(t.Context())
		_, lock := p.Lock("a").Lock(t.Context())
		for _, err := range []error{
			mismatch, inside, holder, lock, g.Release(), g.Renew(t.Context()),
			p.Break(t.Context(), "a", g.Fence(), "why"),
		} {
			if err == nil || strings.Count(err.Error(), "distlock:") != 1 {
				t.Errorf("it says %v", err)
			}
		}
	})
}

// A malformed connection string is a ConfigError, not a temporary error.
func TestNew_BadConnectionString_IsAConfigError(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{
		"mongo://host", "mongodb://host:port", "mongodb://", "mongodb://u:se/cr@et@host/", "host:27017",
	} {
		_, err := distlock.New(t.Context(), distlock.Config{URI: uri})
		var bad *distlock.ConfigError
		if !errors.As(err, &bad) || !errors.Is(err, distlock.ErrConfig) ||
			errors.Is(err, distlock.ErrUnavailable) || strings.Count(err.Error(), "distlock: ") != 1 {
			t.Errorf("%s: %v", uri, err)
		}
	}
}

// A wait's error is one sentence that names the process once. If Close ended the wait, the error
// names the package once.
func TestErrors_OfWaiting_ReadAsASentence(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		a.mustTry("a")
		a.kill()
		time.Sleep(takeoverTime + time.Minute)
		_, err := w.start(nil).try("a")
		if text := held(t, err).Error(); strings.Contains(text, "the its") ||
			!strings.Contains(text, "say that its ping is older") {
			t.Error(text)
		}
		g := b.mustTry("b")
		c := w.start(nil)
		waits := c.queue("b")
		_ = c.Close(context.Background())
		err = (<-waits).err
		wantErr(t, err, distlock.ErrClosed)
		if text := err.Error(); strings.Count(text, "distlock:") != 1 {
			t.Error(text)
		}
		w.release(g)
	})
}
