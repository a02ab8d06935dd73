package integration_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// noticed are the deployments for tests of change streams.
var noticed = named("replicaset", "uri")

// streams records the cursors and the failures of a client's change streams.
type streams struct {
	mu     sync.Mutex // guards the fields below
	asked  map[int64]bool
	opened []int64
	failed int
}

func (s *streams) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			stage, _ := e.Command.Lookup("pipeline", "0", "$changeStream").DocumentOK()
			if e.CommandName == "aggregate" && stage != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.asked == nil {
					s.asked = map[int64]bool{}
				}
				s.asked[e.RequestID] = true
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.asked[e.RequestID] {
				s.opened = append(s.opened, e.Reply.Lookup("cursor", "id").Int64())
			}
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.asked[e.RequestID] || e.CommandName == "getMore" {
				s.failed++
			}
		},
	}
}

// count returns the numbers of opened streams and of failed commands.
func (s *streams) count() (opened, failed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.opened), s.failed
}

func (s *streams) latest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened[len(s.opened)-1]
}

// listening starts a process and records its change streams.
func (w *world) listening(t testing.TB, app string) (*distlock.Manager, *streams) {
	t.Helper()
	s := &streams{}
	opts := options.Client().ApplyURI(w.d.uri).SetAppName(app).SetMonitor(s.monitor())
	client := privateClient(t, opts)
	return w.start(t, func(cfg *distlock.Config) { calm(cfg); cfg.Client = client }), s
}

// calm sets times that prevent takeovers even on a slow machine.
func calm(cfg *distlock.Config) {
	cfg.Ping, cfg.Takeover = paced(time.Second), time.Minute
	cfg.Margin, cfg.MaxWatchGap = 0, 0 // the defaults
	cfg.CommandTimeout = 20 * time.Second
}

// wantTurns releases g and then each waiter's guard. It checks that the waiters acquire in order
// with rising fences.
func wantTurns(t testing.TB, g *distlock.TryGuard, waiters ...<-chan turn) {
	t.Helper()
	last := g.Fence()
	for i, done := range waiters {
		wantReleased(t, g)
		if g = wantTurn(t, done); g.Fence() <= last {
			t.Errorf("turn %d: fence %d after %d", i, g.Fence(), last)
		}
		last = g.Fence()
		for _, later := range waiters[i+1:] {
			wantWaiting(t, later)
		}
	}
	wantReleased(t, g)
}

// A waiter finds its grant if its change stream's cursor is killed at the same time.
func TestLock_CursorKilled_GrantIsFound(t *testing.T) {
	t.Parallel()
	forThese(t, noticed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder := w.start(t, calm)
		m, s := w.listening(t, "")
		if !m.Stats().Server.ChangeStreams {
			t.Skip("this deployment has no change streams")
		}
		g := w.mustTry(t, holder, name)
		for round := range 3 {
			next := w.queue(t, m, name)
			eventually(t, turnLimit, "a stream is open", func() bool {
				opened, failed := s.count()
				return opened > round && (round == 0 || failed > 0)
			})
			opened, failed := s.count()
			assert.Must(t, w.db.RunCommand(t.Context(), bson.D{
				field("killCursors", catalog.LocksCollection), field("cursors", bson.A{s.latest()}),
			}).Err())
			wantReleased(t, g)
			begun := time.Now()
			g = wantTurn(t, next)
			t.Logf("the grant was found after %v", time.Since(begun))
			eventually(t, turnLimit, "the stream failed and another is open", func() bool {
				o, f := s.count()
				return o > opened && f > failed
			})
			injected.add(w.d.name, "cursor killed", "waiting")
		}
		wantReleased(t, g)
	})
}

// A waiter finds a grant that comes while its connections are cut. The order of the queue is kept.
func TestLock_CutOffWhileGranted_GrantIsFound(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder := w.start(t, calm)
		link := w.d.through(t)
		m := w.start(t, func(cfg *distlock.Config) {
			throughWire(cfg, link)
			calm(cfg)
			cfg.CommandTimeout = 2 * time.Second
		})
		g := w.mustTry(t, holder, name)
		for _, mode := range []linkState{cut, stalling} {
			first, second := w.queue(t, m, name), w.queue(t, holder, name)
			link.set(mode)
			wantReleased(t, g)
			eventually(t, turnLimit, "it is granted to the one that was cut off", func() bool {
				return w.lock(t, name).Process == m.Process()
			})
			wantWaiting(t, second)
			link.set(cut) // loses the held back replies
			link.set(passing)
			injected.add(w.d.name, "cut", "waiting")
			g = wantTurn(t, first)
			wantReleased(t, g)
			g = wantTurn(t, second)
		}
		wantReleased(t, g)
	})
}

// Three waiters acquire the lock after the locks collection is dropped manually, although their
// queue entries are gone. The holder's Release returns ErrLockLost.
func TestLock_CollectionDropped_AllHaveTheirTurn(t *testing.T) {
	t.Parallel()
	forThese(t, noticed, func(t *testing.T, shared *world) {
		w := shared.elsewhere(t, databaseName())
		name := w.name("balancer")
		holder, a, b := w.start(t, calm), w.start(t, calm), w.start(t, calm)
		g := w.mustTry(t, holder, name)
		waiters := []<-chan turn{w.queue(t, a, name), w.queue(t, b, name), w.queue(t, a, name)}
		assert.Must(t, w.db.Collection(catalog.LocksCollection).Drop(t.Context()))
		injected.add(w.d.name, "collection dropped", "waiting")
		wantErr(t, g.Release(), distlock.ErrLockLost)
		for range waiters { // in any order
			var got turn
			select {
			case got = <-waiters[0]:
			case got = <-waiters[1]:
			case got = <-waiters[2]:
			case <-time.After(turnLimit):
				t.Fatal("nobody has the lock")
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.guard.Fence() <= g.Fence() {
				t.Errorf("fence %d after %d", got.guard.Fence(), g.Fence())
			}
			g = got.guard
			wantReleased(t, g)
		}
	})
}

// elsewhere returns a world in another database of the deployment.
func (w *world) elsewhere(t testing.TB, database string) *world {
	t.Helper()
	other := &world{d: w.d, db: w.d.app.Database(database, options.Database().
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()))}
	if database == "config" {
		other.prefix = bson.NewObjectID().Hex() + "-"
	}
	t.Cleanup(func() {
		assert.NoErr(t, other.clean(context.WithoutCancel(t.Context())))
		w.keepAll(other)
	})
	return other
}

func (w *world) keepAll(other *world) {
	other.mu.Lock()
	defer other.mu.Unlock()
	for _, g := range other.kept {
		w.keep(g)
	}
}

// A waiter finds a grant that comes before its change stream is open, or before the process knows
// that the stream is open.
func TestLock_GrantedWhileStreamOpens_GrantIsFound(t *testing.T) {
	t.Parallel()
	forThese(t, noticed, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name   string
			opened bool // the server has opened the stream, and its reply is delayed
		}{{"before it is opened", false}, {"before it is known to be open", true}} {
			t.Run(c.name, func(t *testing.T) {
				name := w.name(c.name)
				inner, err := mongocatalog.New(w.d.app, mongocatalog.Options{Database: w.db.Name()})
				assert.Must(t, err)
				arrived, goOn := make(chan struct{}, 8), make(chan struct{})
				store := fault.Wrap(inner)
				store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
					wait := func() {
						arrived <- struct{}{}
						select {
						case <-goOn:
						case <-ctx.Done():
						}
					}
					switch {
					case call.Op == fault.HeldOrFree || call.Op == fault.Look: // only the stream reports the grant
						select {
						case <-goOn:
						case <-ctx.Done():
							return fault.Refused(call.Op)
						}
					case call.Op == fault.GrantStream && !c.opened:
						wait()
					case call.Op == fault.GrantStream:
						err := apply()
						wait()
						return err
					}
					return apply()
				})
				holder := w.start(t, calm)
				m := w.start(t, func(cfg *distlock.Config) {
					calm(cfg)
					cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
				})
				g := w.mustTry(t, holder, name)
				next := w.queue(t, m, name)
				select {
				case <-arrived:
				case <-time.After(turnLimit):
					t.Fatal("no stream is opened")
				}
				wantReleased(t, g)
				if l := w.lock(t, name); l.Process != m.Process() {
					t.Fatalf("not granted: %+v", l)
				}
				close(goOn)
				wantReleased(t, wantTurn(t, next))
				injected.add(w.d.name, "stream opened late", "waiting")
			})
		}
	})
}

// Waiters find their grants while a fail point fails the commands of change streams. The test runs
// alone, because a server has only one such fail point.
func TestLock_ServerFailsStreams_GrantsAreFound(t *testing.T) {
	inTurn(t, named("replicaset"), func(t *testing.T, w *world) {
		for _, c := range []struct {
			name string
			data bson.D
		}{
			{"getMore fails", bson.D{field("failCommands", bson.A{"getMore"}), field("errorCode", 11601)}},
			{"getMore cuts", bson.D{field("failCommands", bson.A{"getMore"}),
				field("closeConnection", true)}},
			{"history lost", bson.D{field("failCommands", bson.A{"getMore"}), field("errorCode", 286)}},
			{"no stream opens", bson.D{field("failCommands", bson.A{"aggregate"}), field("errorCode", 8)}},
			{"opening takes long", bson.D{field("failCommands", bson.A{"aggregate"}),
				field("blockConnection", true), field("blockTimeMS", 1500)}},
		} {
			t.Run(c.name, func(t *testing.T) {
				name, app := w.name(c.name), "waits-"+bson.NewObjectID().Hex()
				holder := w.start(t, calm)
				m, _ := w.listening(t, app)
				g := w.mustTry(t, holder, name)
				failing := func(mode any) int64 {
					raw, err := w.d.app.Database("admin").RunCommand(t.Context(), bson.D{
						field("configureFailPoint", "failCommand"), field("mode", mode),
						field("data", append(slices.Clone(c.data), field("appName", app))),
					}).Raw()
					assert.Must(t, err)
					return raw.Lookup("count").AsInt64()
				}
				before := failing("alwaysOn")
				t.Cleanup(func() {
					_ = w.d.app.Database("admin").RunCommand(context.WithoutCancel(t.Context()),
						bson.D{field("configureFailPoint", "failCommand"), field("mode", "off")}).Err()
				})
				var waiters []<-chan turn
				for range 2 {
					waiters = append(waiters, w.queue(t, m, name))
				}
				begun := time.Now()
				wantTurns(t, g, waiters...)
				t.Logf("two turns took %v", time.Since(begun))
				if n := failing("off") - before; n == 0 {
					t.Error("the server failed nothing")
				}
				last := w.mustTry(t, holder, name)
				wantTurns(t, last, w.queue(t, m, name))
				injected.add(w.d.name, c.name, "waiting")
			})
		}
	})
}

// Three waiters get their turns in order after the primary steps down, because the new primary has
// the same queue.
func TestStepDown_WhileThreeWait_AllHaveTheirTurnInOrder(t *testing.T) {
	inTurn(t, named("replicaset"), func(t *testing.T, w *world) {
		name := w.name("balancer")
		longer := func(cfg *distlock.Config) { cfg.Takeover = 90 * time.Second } // an election is shorter
		holder, a, b := w.start(t, longer), w.start(t, longer), w.start(t, longer)
		g := w.mustTry(t, holder, name)
		waiters := []<-chan turn{w.queue(t, a, name), w.queue(t, b, name), w.queue(t, a, name)}
		assert.Must(t, w.d.set.StepDown(t.Context()))
		injected.add(w.d.name, "primary stepped down", "waiting")
		released := make(chan error, 1)
		go func() { released <- g.Release() }() // waited for below
		assert.Value(w.d.set.Primary(t.Context()))(t)
		first := wantTurn(t, waiters[0])
		if err := <-released; err != nil {
			t.Logf("Release: %v", err) // the release continues in the background
		}
		if first.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d", first.Fence(), g.Fence())
		}
		wantTurns(t, first, waiters[1:]...)
	})
}
