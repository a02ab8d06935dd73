package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// rewrite changes fields of a lock document as an operator could. The value nil removes a field.
func (w *world) rewrite(name string, fields map[string]any) {
	w.T.Helper()
	var doc bson.D
	assert.Must(w.T, bson.Unmarshal(w.Document(name), &doc))
	var changed bson.D
	for _, e := range doc {
		if v, ok := fields[e.Key]; !ok {
			changed = append(changed, e)
		} else if v != nil {
			changed = append(changed, bson.E{Key: e.Key, Value: v})
		}
	}
	assert.Must(w.T, w.Mem.Put(catalog.LocksCollection, changed))
}

func (p *proc) deny(ops ...fault.Op) {
	p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if slices.Contains(ops, call.Op) {
			return fmt.Errorf("%s: %w", call.Op, &distlock.PrivilegeError{
				Namespace: "config.lockpings", Action: "find", Err: errors.New("code 13"),
			})
		}
		return apply()
	})
}

// A waiter reads its lock again and returns within this time.
const noticed = pingTime + pingTime/6 + slack

// If a waiter can no longer acquire its lock, Lock returns an error with the reason. A new call of
// Lock returns the same error.
func TestLock_WaitingBecomesHopeless_IsTold(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []distlock.Option
		spoil func(w *world, holder, waiter *proc)
		want  func(error) bool
	}{
		"document malformed": {
			spoil: func(w *world, _, _ *proc) { w.rewrite("a", map[string]any{"state": "held"}) },
			want:  func(err error) bool { return errors.Is(err, distlock.ErrMalformed) },
		},
		"queue malformed": {
			spoil: func(w *world, _, _ *proc) { w.rewrite("a", map[string]any{"waiters": "many"}) },
			want:  func(err error) bool { return errors.Is(err, distlock.ErrMalformed) },
		},
		"ping of the holder malformed": {
			spoil: func(w *world, holder, _ *proc) {
				holder.kill()
				_ = w.Mem.Put(catalog.PingsCollection, bson.D{
					{Key: "_id", Value: holder.Process()}, {Key: "ping", Value: "yesterday"},
				})
			},
			want: func(err error) bool { return errors.Is(err, distlock.ErrMalformed) },
		},
		"another limit": {
			opts: []distlock.Option{distlock.Permits(1)},
			spoil: func(w *world, _, _ *proc) {
				w.rewrite("a", map[string]any{"mode": nil, "limit": nil, "sharers": nil})
			},
			want: func(err error) bool { return errors.Is(err, distlock.ErrPermitMismatch) },
		},
		"pings may not be read": {
			spoil: func(_ *world, _, waiter *proc) { waiter.deny(fault.Look) },
			want:  denied,
		},
		"locks may not be read": {
			spoil: func(_ *world, _, waiter *proc) {
				waiter.deny(fault.HeldOrFree, fault.Look, fault.Enter)
			},
			want: denied,
		},
	} {
		for _, full := range []bool{false, true} {
			runInBubble(t, fmt.Sprintf("%s, queue full %v", name, full), func(t *testing.T, w *world) {
				a, l, b := w.start(nil), w.start(nil), w.start(nil)
				b.withoutNotices()
				g := a.MustTry("a", c.opts...)
				left := func() {}
				if full {
					left = w.fill(l, "a", c.opts...)
				}
				done := b.queue("a", c.opts...)
				time.Sleep(10 * time.Second)
				w.wantWaiting(done)
				c.spoil(w, a, b)
				start := time.Now()
				got := w.ended(done)
				if took := time.Since(start); !c.want(got.err) || took > noticed {
					t.Errorf("after %v: %v", took, got.err)
				}
				_, err := b.Try("a", c.opts...)
				if !c.want(err) && name != "locks may not be read" { // a plain acquire writes
					t.Errorf("a new call: %v", err)
				}
				b.Store.Set(nil)
				_ = g.Release()
				left()
			})
		}
	}
}

func denied(err error) bool {
	var e *distlock.PrivilegeError
	return errors.As(err, &e)
}

// If a failure may be temporary, the wait continues. The process logs a warning when the failure
// begins, and a message when it ends.
func TestLock_WaitingBecomesDoubtful_IsLoggedOnce(t *testing.T) {
	for name, op := range map[string]fault.Op{
		"reads": fault.Look, "polls": fault.HeldOrFree, "entering": fault.Enter,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			var log assert.Log
			a := w.start(nil)
			b := w.start(func(c *distlock.Config) { c.Logger = zerolog.New(&log).Level(zerolog.InfoLevel) })
			g := a.MustTry("a")
			var fail atomic.Bool
			fail.Store(true)
			b.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				switch {
				case fail.Load() && call.Op == op:
					return fault.Refused(call.Op)
				case call.Op == fault.GrantStream:
					return catalog.ErrNoGrantStream
				}
				return apply()
			})
			done := b.queue("a")
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			want := func(text string) {
				t.Helper()
				if n := strings.Count(log.String(), text); n != 1 {
					t.Errorf("%d times %s, want once:\n%s", n, text, log.String())
				}
			}
			want(`"warn"`)
			fail.Store(false)
			time.Sleep(2 * pingTime)
			w.release(g)
			g = w.wantTurn(done)
			want("succeeds again")
			want(`"warn"`)
			w.release(g)
		})
	}
}
