package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// Close of the Manager waits for the leader's function before it releases the lock.
func TestClose_LeaderRuns_LeadsOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const work = 20 * time.Minute
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader()
		closing := time.Now()
		context.AfterFunc(l.ctx, func() {
			assert.Equal(t, time.Since(closing), 0, "the context ended %v after Close began, want %v")
			time.Sleep(work)
			l.finish <- nil
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		assert.NoErr(t, a.p.Close(ctx))
		next := b.wantLeader().obey()
		assert.Equal(t, time.Since(closing), work, "another leads %v after Close began, want %v")
		assert.Equal(t, next.leader.Fence(), l.leader.Fence()+1, "fence %d, want %d")
		wantErr(t, context.Cause(l.ctx), distlock.ErrClosed)
		<-a.over
		wantErr(t, a.err, distlock.ErrClosed)
		synctest.Wait()
	})
}
