package election_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
)

// Close of the Manager waits for the leader's function before it releases the lock. If the context
// of Close ends first, the lock stays held until a takeover, and the error names the lock.
func TestClose_LeaderRuns_LeadsOn(t *testing.T) {
	const after = takeoverTime
	for how, c := range map[string]struct{ within, work, least, most time.Duration }{
		"within its context": {time.Hour, 20 * time.Minute, 20 * time.Minute, 20 * time.Minute},
		"beyond it":          {3 * time.Second, 10 * time.Second, after, after + 2*time.Minute},
	} {
		inBubbleSub(t, how, func(t *testing.T, w *world) {
			a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
			l := a.wantLeader()
			time.Sleep(2 * time.Second)
			closing := time.Now()
			context.AfterFunc(l.ctx, func() {
				assert.Equal(t, time.Since(closing), 0, "the context ended %v after Close began, want %v")
				time.Sleep(c.work)
				l.finish <- nil
			})
			ctx, cancel := context.WithTimeout(context.Background(), c.within)
			defer cancel()
			err := a.p.Close(ctx)
			took := time.Since(closing)
			if took != min(c.within, c.work) || (err == nil) != (c.work < c.within) ||
				err != nil && !strings.Contains(err.Error(), `"`+name+`"`) {
				t.Errorf("Close took %v: %v", took, err)
			}
			next := b.wantLeader().obey()
			if after := time.Since(closing); after < c.least || after > c.most {
				t.Errorf("another leads %v after Close began, want %v", after, c.least)
			}
			if f := next.leader.Fence(); f != l.leader.Fence()+1 {
				t.Errorf("fence %d after %d", f, l.leader.Fence())
			}
			wantErr(t, context.Cause(l.ctx), distlock.ErrClosed)
			<-a.over
			wantErr(t, a.err, distlock.ErrClosed)
			synctest.Wait()
		})
	}
}

// If the leader's function calls Close of the Manager with its own context, Close returns
// immediately.
func TestClose_ByTheLeader_ReturnsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.Start(nil)
		lead := func(ctx context.Context, _ *election.Leadership) error {
			start := time.Now()
			err := p.Close(ctx)
			if took := time.Since(start); took > 0 {
				t.Errorf("Close took %v", took)
			}
			return err
		}
		err := election.Run(t.Context(), p.Manager, name, lead)
		wantErr(t, err, distlock.ErrClosed)
	})
}
