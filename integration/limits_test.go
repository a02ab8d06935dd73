package integration_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// soon is the allowed delay of a call past its limit on a loaded machine. It is shorter than the
// command timeout of slow, so a call that waits for its command fails the test.
const soon = 20 * time.Second

// within fails the test if the function do takes longer than limit plus soon, or returns nil.
func within(t *testing.T, what string, limit time.Duration, do func() error) error {
	t.Helper()
	start := time.Now()
	err := do()
	if took := time.Since(start); took > limit+soon {
		t.Errorf("%s returned after %v with %v, want %v", what, took, err, limit)
	}
	if err == nil {
		t.Errorf("%s says that all is well", what)
	}
	return err
}

// Calls return within their context or WaitAtMost if the server accepts requests and never answers.
// Close returns within its context too.
func TestLimits_ServerNeverAnswers_CallsReturnInTime(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		link := w.d.through(t)
		mine := func(cfg *distlock.Config) {
			slow(cfg)
			cfg.URI, cfg.Client, cfg.PingClient = link.uri(), nil, nil
		}
		other := w.start(t, slow)
		w.mustTry(t, other, w.name("theirs"))
		m := w.startUnclosed(t, mine)
		own, released := w.mustTry(t, m, w.name("own")), w.mustTry(t, m, w.name("released"))
		link.set(stalling)
		calls := map[string]func(ctx context.Context) error{
			"TryLock": func(ctx context.Context) error {
				return assert.Err(m.Lock(w.name("free")).TryLock(ctx))
			},
			"Lock": func(ctx context.Context) error {
				return assert.Err(m.Lock(w.name("theirs")).Lock(ctx))
			},
			"Lock, WaitAtMost": func(context.Context) error {
				_, err := m.Lock(w.name("theirs")).Lock(context.Background(), distlock.WaitAtMost(time.Second))
				return err
			},
			"LockAll": func(ctx context.Context) error {
				return assert.Err(m.LockAll(ctx, []string{w.name("x"), w.name("y")}))
			},
			"Verify": own.Verify,
			"Break": func(ctx context.Context) error {
				return assert.Err(m.Inspector().Break(ctx, w.name("theirs"), 7, "test"))
			},
			"Locks": func(ctx context.Context) error {
				for _, err := range m.Inspector().Locks(ctx) {
					if err != nil {
						return err
					}
				}
				return nil
			},
		}
		ended := make(chan error, len(calls))
		for name, call := range calls {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				ended <- within(t, name, time.Second, func() error { return call(ctx) })
			}()
		}
		for range calls {
			<-ended
		}
		release := make(chan error, 1)
		go func() { release <- released.Release() }()
		time.Sleep(100 * time.Millisecond) // Release is in progress, or Close releases the lock
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		err := within(t, "Close", 100*time.Millisecond, func() error { return m.Close(ctx) })
		for _, name := range []string{"own", "released"} {
			if !strings.Contains(fmt.Sprint(err), w.name(name)) {
				t.Errorf("close says %v, want that %s may still be held", err, name)
			}
		}
		_ = within(t, "a Release under way", 0, func() error { return <-release })
	})
}

// InTransaction returns within its context if the server stops answering. It does not wait for the
// abort.
func TestLimits_ServerFallsSilentInTransaction_ReturnsInTime(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset"), func(t *testing.T, w *world) {
		link := w.d.through(t)
		m := w.startUnclosed(t, func(cfg *distlock.Config) {
			slow(cfg)
			cfg.URI, cfg.Client, cfg.PingClient = link.uri(), nil, nil
		})
		g := w.mustTry(t, m, w.name("own"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var silent time.Time
		err := g.InTransaction(ctx, func(ctx context.Context) error {
			app := mongo.SessionFromContext(ctx).Client().Database(w.db.Name()).Collection("work")
			if _, err := app.InsertOne(ctx, bson.D{{Key: "by", Value: "test"}}); err != nil {
				return err
			}
			link.set(stalling)
			silent = time.Now()
			time.AfterFunc(time.Second, cancel)
			return assert.Err(app.InsertOne(ctx, bson.D{{Key: "by", Value: "test"}}))
		})
		if took := time.Since(silent); err == nil || took > 20*time.Second { // an abort may take a minute
			t.Errorf("InTransaction returned after %v with %v, want 1s", took, err)
		}
		closing, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_ = within(t, "Close", 100*time.Millisecond, func() error { return m.Close(closing) })
	})
}

// New returns within its context if the server accepts connections and never answers.
func TestLimits_NewOnASilentListener_ReturnsInTime(t *testing.T) {
	t.Parallel()
	l := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan struct{})
	go func() { // ends with the listener
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the client
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = within(t, "New", time.Second, func() error {
		_, err := distlock.New(ctx, distlock.Config{
			URI: "mongodb://" + l.Addr().String() + "/?directConnection=true", Database: "distlock",
			CommandTimeout: time.Minute, Takeover: 10 * time.Minute,
		})
		return err
	})
	_ = l.Close()
	<-served
}
