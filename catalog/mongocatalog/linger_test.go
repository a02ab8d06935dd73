package mongocatalog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	monitoring "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// It tries to break: what bounds one command does not cost those that come next, whether its
// caller's context is cancelled or has a deadline: the answer comes on the connection, which is
// used again, and the server is told no deadline but that of every command.
func TestCatalog_CallerGivesUp_ConnectionIsKept(t *testing.T) {
	t.Parallel()
	type bounding = func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	for name, end := range map[string]bounding{
		"cancelled": func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
			return context.WithCancel(ctx)
		},
		"deadline": context.WithTimeout,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			under, answered := make(chan struct{}), make(chan struct{})
			var slow atomic.Bool
			s := serve(t, func(command bson.Raw) bson.D {
				if slow.CompareAndSwap(true, false) {
					close(under)
					<-answered
				}
				return found(held())(command)
			})
			var made atomic.Int32
			client, err := mongo.Connect(options.Client().
				ApplyURI("mongodb://" + s.listener.Addr().String() + "/?replicaSet=c&maxPoolSize=1").
				SetPoolMonitor(&monitoring.PoolMonitor{Event: func(e *monitoring.PoolEvent) {
					if e.Type == monitoring.ConnectionCreated {
						made.Add(1)
					}
				}}))
			assert.Must(t, err)
			t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
			c := assert.Value(mongocatalog.New(client, mongocatalog.Options{}))(t)
			read := func(ctx context.Context) error { return assert.Err(on(c).Acquire(ctx, request())) }
			assert.Must(t, read(t.Context()))
			slow.Store(true)
			done := make(chan error, 1)
			begin := func(within time.Duration) (_ context.Context, _ context.CancelFunc, sent bool) {
				ctx, cancel := end(t.Context(), within)
				go func() { done <- read(ctx) }() // ends with the answer
				select {
				case <-under:
					return ctx, cancel, true
				case <-done: // its time was up before
					return ctx, cancel, false
				}
			}
			within := 20 * time.Millisecond
			ctx, cancel, sent := begin(within)
			for ; !sent; ctx, cancel, sent = begin(within) { // a busy machine may send nothing so soon
				cancel()
				within *= 2
			}
			defer cancel()
			if name == "cancelled" {
				cancel()
			}
			<-ctx.Done()
			close(answered)
			if err := <-done; err != nil && !errors.Is(err, catalog.ErrUnknownOutcome) {
				t.Errorf("the command that was given up: %v", err)
			}
			assert.NoErr(t, read(t.Context()))
			assert.Equal(t, made.Load(), 1, "%d connections were made, want the first to be kept (%d)")
			for _, command := range s.sent() {
				if ms, ok := command.Lookup("maxTimeMS").AsInt64OK(); ok && ms < 1000 {
					t.Errorf("a command tells its caller's deadline: maxTimeMS %d", ms)
				}
			}
		})
	}
}

// It tries to break: a server that does not answer keeps nobody for longer than a moment.
func TestCatalog_CallerGivesUp_NothingLingersForLong(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	give := atomic.Pointer[context.CancelFunc]{}
	give.Store(&cancel)
	c := ownStore(t, serve(t, func(bson.Raw) bson.D {
		(*give.Load())()
		return hang
	}))
	for range 2 { // nothing lingers with a server that did not answer before
		begun := time.Now()
		_, err := on(c).Acquire(ctx, request())
		took := time.Since(begun)
		if !errors.Is(err, catalog.ErrUnknownOutcome) || took > 20*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		ctx, cancel = context.WithCancel(t.Context())
		give.Store(&cancel)
	}
	cancel()
}

// Tries to break: what was not sent when its caller gave up is not sent any more. Else the undo of
// an acquisition that waits for a connection is sent before it, finds nothing, and the lock goes to
// a session without an owner.
func TestCatalog_CallerGivesUp_BeforeItIsSent_IsNotSent(t *testing.T) {
	t.Parallel()
	under, answered := make(chan struct{}), make(chan struct{})
	var slow atomic.Bool
	slow.Store(true)
	s := serve(t, func(command bson.Raw) bson.D {
		if slow.CompareAndSwap(true, false) {
			close(under)
			<-answered
		}
		return found(held())(command)
	})
	asked := make(chan struct{}, 10)
	client, err := mongo.Connect(options.Client().
		ApplyURI("mongodb://" + s.listener.Addr().String() + "/?replicaSet=c&maxPoolSize=1").
		SetPoolMonitor(&monitoring.PoolMonitor{Event: func(e *monitoring.PoolEvent) {
			if e.Type == monitoring.ConnectionCheckOutStarted {
				asked <- struct{}{}
			}
		}}))
	assert.Must(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	c := assert.Value(mongocatalog.New(client, mongocatalog.Options{}))(t)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { // ends with the answer
		_, err := on(c).Acquire(t.Context(), request())
		first <- err
	}()
	<-under
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // ends with its context
		r := request()
		r.Name = "given up"
		_, err := on(c).Acquire(ctx, r)
		second <- err
	}()
	<-asked
	cancel()
	close(answered)
	err = <-second
	if !errors.Is(err, context.Canceled) || errors.Is(err, catalog.ErrUnknownOutcome) {
		t.Errorf("want certainly not applied, got %v", err)
	}
	assert.NoErr(t, <-first)
	assert.NoErr(t, assert.Err(on(c).Acquire(t.Context(), request()))) // sent after all of before
	for _, command := range s.sent() {
		if name, _ := command.Lookup("query", "_id").StringValueOK(); name == "given up" {
			t.Errorf("sent after its caller gave up: %v", command)
		}
	}
}
