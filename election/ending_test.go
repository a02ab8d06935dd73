package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
)

// If the context of Run ends, Run returns nil at any stage, even if the leader's function returns
// the error or the cause of the context.
func TestRun_StoppedCleanly_IsNoError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.Start(nil)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		fn := func(ctx context.Context, _ *election.Leadership) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		wantErr(t, election.Run(ended, p.Manager, name, fn), nil)
		if err := election.Run(ended, p.Manager, name, fn, election.Once()); err == nil {
			t.Error("no error although there was no term")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Hour, func() { cancel(errors.New("a signal")) })
		wantErr(t, election.Run(ctx, p.Manager, name, fn), nil)
		limited, done := context.WithTimeoutCause(t.Context(), time.Hour, errors.New("the shift is over"))
		defer done()
		neither := func(ctx context.Context, _ *election.Leadership) error {
			<-ctx.Done()
			return ctx.Err() // neither context.Canceled nor the cause
		}
		wantErr(t, election.Run(limited, p.Manager, name, neither), nil)
		rests := w.stand(p, election.Backoff(time.Hour, time.Hour))
		rests.wantLeader().finish <- nil
		synctest.Wait()
		wantErr(t, rests.quit(), nil)
	})
}

// An error or a panic of the leader's function is logged. Run returns the error of the last term.
func TestRun_FunctionFails_IsLoggedAndReturned(t *testing.T) {
	failure := errors.New("disk full")
	for how, end := range map[string]func(r *run){
		"by itself": func(*run) {},
		"resigned": func(r *run) {
			go func() { _ = r.e.Resign(context.Background()) }()
			synctest.Wait()
		},
		"context": func(r *run) { r.cancel() },
	} {
		for _, result := range []error{failure, panicking{failure}} {
			inBubbleSub(t, how, func(t *testing.T, w *world) {
				var log assert.Log
				p := w.Start(func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
				r := w.stand(p, election.Backoff(time.Minute, time.Minute))
				r.wantLeader().finish <- nil
				l := r.wantLeader()
				end(r)
				l.finish <- result
				time.Sleep(time.Second)
				synctest.Wait()
				_, panics := result.(panicking)
				if text := log.String(); !strings.Contains(text, "disk full") ||
					panics && !strings.Contains(text, "setup_test.go") {
					t.Errorf("the log says %s", text)
				}
				if how == "resigned" { // the candidate leads again
					r.wantLeader().obey()
					wantErr(t, r.quit(), nil)
					return
				}
				err := r.quit()
				var panicked *election.PanicError
				if panics && (!errors.As(err, &panicked) || panicked.Value != "disk full" ||
					!strings.Contains(panicked.Stack, "setup_test.go")) ||
					!panics && !errors.Is(err, failure) || errors.Is(err, context.Canceled) {
					t.Errorf("Run returned %v", err)
				}
			})
		}
	}
}
