package distlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// If an acquisition fails, the error names a holder or the number of held permits. No part of the
// text occurs twice.
func TestErrors_OfAcquiring_SayEachThingOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		a.MustTry("held", distlock.Why("night run"))
		for range 2 {
			a.MustTry("permits", distlock.Permits(2), distlock.Why("load"))
		}
		a.MustTry("read", distlock.Shared())
		b.MustTry("read", distlock.Shared())
		within := func(d time.Duration, name string) error {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			return assert.Err(b.Lock(name).Lock(ctx))
		}
		closed := w.start(nil)
		assert.Must(t, closed.Close(t.Context()))
		errs := map[string]error{
			`acquire "held": held by A, "night run", since `: assert.Err(b.Try("held")),
			`acquire "held": context deadline exceeded while waiting: held by A, "night run", ` +
				`since `: within(10*time.Second, "held"),
			`acquire "permits": 2 of 2 permits are held, one by A, "load", since `: assert.Err(
				b.Try("permits", distlock.Permits(2))),
			`lock "permits" is in use as a semaphore of 2 permits, not as a semaphore of 3 ` +
				`permits; `: assert.Err(b.Try("permits", distlock.Permits(3))),
			`acquire "read": held by 2 sharers, one is A, since `: assert.Err(b.Try("read")),
			`acquire "held": closed`:                              assert.Err(closed.Try("held")),
		}
		b.Store.Set(fault.Refusing(fault.Enter))
		errs[`acquire "free": context deadline exceeded while waiting: enter: refused on purpose`] =
			within(10*time.Second, "free")
		for want, err := range errs {
			text := strings.ReplaceAll(err.Error(), a.Process(), "A")
			if !strings.HasPrefix(text, "distlock: "+want) {
				t.Errorf("want %s...\ngot  %s", want, text)
			}
			for _, once := range []string{
				"acquire \"", "while waiting", "deadline exceeded", a.Process(), "distlock: ",
			} {
				if n := strings.Count(err.Error(), once); n > 1 {
					t.Errorf("%q occurs %d times in\n%s", once, n, err)
				}
			}
		}
	})
}
