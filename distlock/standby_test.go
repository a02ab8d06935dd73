package distlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/leading"
)

// Who stands by for another's lock waits as long as that lives, and that is no sign of a line that
// stands still: neither in the document, nor outside of a line that is full of it, nor first in its
// process. A call that wants its turn counts behind it and before it.
func TestStats_OldestWait_LeavesOutWhoStandsBy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		held := other.mustTry("a")
		locks := leading.Of[*distlock.DistributedLock, *distlock.TryGuard, *distlock.LockInfo]()
		ctx, giveUp := context.WithCancel(t.Context())
		want := func(waiting int, oldest time.Duration) {
			t.Helper()
			synctest.Wait()
			if s := p.Stats(); s.Waiting != waiting || s.OldestWait != oldest {
				t.Errorf("%d wait, for %v at most; want %d, %v", s.Waiting, s.OldestWait, waiting, oldest)
			}
		}
		stand := func(n int) {
			for range n {
				go func() { _, _ = locks.Standby(p.Lock("a")).Lock(ctx) }()
			}
			synctest.Wait()
		}
		stand(1)
		time.Sleep(time.Hour)
		want(1, 0)
		stand(120) // more than the document has room for
		time.Sleep(time.Hour)
		want(121, 0)
		mine, leave := context.WithCancel(ctx)
		go func() { _, _ = p.Lock("a").Lock(mine) }()
		time.Sleep(time.Hour)
		want(122, time.Hour)
		leave()
		want(121, 0)
		giveUp()
		want(0, 0)
		_ = held.Release()
	})
}
