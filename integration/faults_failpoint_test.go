package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A failure is a setting of the server's fail point, and its effect on a command.
type failure struct {
	name  string
	data  bson.D
	means meaning
}

type meaning int

const (
	notDoneUnknown meaning = iota // not carried out, and the outcome is unknown
	notDone                       // not carried out, and the error reports it
	doneUnknown                   // carried out, and the error does not report it
	doneLate                      // carried out after the client has given up, or not at all
)

var failures = []failure{
	{"connection closed", bson.D{field("closeConnection", true)}, notDoneUnknown},
	{"91 shutting down", bson.D{field("errorCode", 91)}, notDoneUnknown},
	{"189 stepped down", bson.D{field("errorCode", 189)}, notDoneUnknown},
	{"11602 interrupted", bson.D{field("errorCode", 11602)}, notDoneUnknown},
	{"10107 not primary", bson.D{field("errorCode", 10107)}, notDone},
	{"462 overloaded", bson.D{field("errorCode", 462), field("errorLabels",
		bson.A{"SystemOverloadedError", "RetryableError"})}, notDone},
	{"463 overloaded", bson.D{field("errorCode", 463), field("errorLabels",
		bson.A{"SystemOverloadedError", "RetryableError", "NoWritesPerformed"})}, notDone},
	{"371 writes blocked", bson.D{field("errorCode", 371)}, notDone},
	{"14031 disk full", bson.D{field("errorCode", 14031)}, notDoneUnknown},
	{"write concern error", bson.D{field("writeConcernError",
		bson.D{field("code", 64), field("errmsg", "waiting for replication timed out")})}, doneUnknown},
	{"blocked", bson.D{field("blockConnection", true),
		field("blockTimeMS", 2*commandLimit.Milliseconds())}, doneLate},
}

// E1, E5 to E7, I1 to I3, I7 to I9: If the server fails one command of an operation, the operation
// still ends with a correct outcome. The cases run one after the other, because a server has one
// fail point for commands.
func TestFaults_ServerFailsOneCommand(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		p := w.failing(t)
		for _, f := range failures {
			for op, run := range map[fault.Op]func(*testing.T, *failing, failure){
				fault.Acquire: failedAcquire, fault.Evict: failedEviction,
				fault.Ping: failedPing, fault.Release: failedRelease,
			} {
				t.Run(f.name+" at "+string(op), func(t *testing.T) {
					run(t, p, f)
				})
			}
		}
	})
}

// failing is a process and the fail point for its commands.
type failing struct {
	w    *world
	m    *distlock.Manager
	app  string
	next int // the number of lock names so far

	mu    sync.Mutex // guards the fields below
	op    fault.Op   // the operation to fail; empty for none
	point bson.D
}

// split sends pings with a second client, so that a fail point can select the pings or all other
// commands.
type split struct {
	catalog.Catalog
	beat catalog.Catalog
}

func (s split) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	return s.beat.Ping(ctx, b)
}

func (w *world) failing(t *testing.T) *failing {
	t.Helper()
	p := &failing{w: w, app: "fails-" + bson.NewObjectID().Hex()}
	open := func(name string) catalog.Catalog {
		// The client polls the state of the server. Monitoring by a stream would report only changes.
		// Like the client of mongocatalog.Dial, the client does not retry if the server is overloaded.
		client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetAppName(name).
			SetMaxAdaptiveRetries(0).
			SetServerMonitoringMode("poll").SetHeartbeatInterval(500*time.Millisecond))
		c, err := mongocatalog.New(client, mongocatalog.Options{
			Database: w.db.Name(), CommandTimeout: commandLimit})
		assert.Must(t, err)
		return c
	}
	store := fault.Wrap(split{open(p.app), open(p.app + "-ping")})
	store.Set(p.before)
	p.m = w.start(t, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
		cfg.CommandTimeout, cfg.Takeover = commandLimit, 40*time.Second
	})
	return p
}

// fail makes the server fail the command of the next operation op. The returned function switches
// the fail point off and checks that the server failed exactly one command.
func (p *failing) fail(t *testing.T, op fault.Op, f failure) (over func()) {
	t.Helper()
	command, app := commandOf(op), p.app
	if op == fault.Ping {
		app += "-ping"
	}
	data := append(bson.D{field("failCommands", bson.A{command}), field("appName", app)}, f.data...)
	before := p.entered(t) // must come first, because it switches the fail point off
	p.mu.Lock()
	p.op = op
	p.point = bson.D{field("configureFailPoint", "failCommand"),
		field("mode", bson.D{field("times", 1)}), field("data", data)}
	p.mu.Unlock()
	return func() {
		t.Helper()
		assert.Equal(t, p.entered(t)-before, 1, "the server failed %d commands, want %d")
	}
}

// commandOf returns the name of the command with which an operation writes.
func commandOf(op fault.Op) string {
	if op == fault.Release {
		return "update" // for a lock without waiters
	}
	return "findAndModify"
}

// This hook of the store sets the fail point before the operation that must fail.
func (p *failing) before(ctx context.Context, call fault.Call, apply func() error) error {
	p.mu.Lock()
	strikes := call.Op == p.op
	point := p.point
	if strikes {
		p.op = ""
	}
	p.mu.Unlock()
	if strikes {
		if err := p.w.d.app.Database("admin").RunCommand(ctx, point).Err(); err != nil {
			return err
		}
	}
	return apply()
}

// entered switches the fail point off and returns the number of commands that failed.
func (p *failing) entered(t *testing.T) int64 {
	t.Helper()
	raw, err := p.w.d.app.Database("admin").RunCommand(t.Context(),
		bson.D{field("configureFailPoint", "failCommand"), field("mode", "off")}).Raw()
	assert.Must(t, err)
	n, ok := raw.Lookup("count").AsInt64OK()
	if !ok {
		t.Fatalf("the server does not count: %v", raw)
	}
	return n
}

// lockName acquires and releases a new lock. It returns the lock's name and its fence.
func (p *failing) lockName(t *testing.T) (string, int64) {
	t.Helper()
	p.next++
	name := p.w.name("lock-" + string(rune('a'+p.next)))
	g := p.w.mustTry(t, p.m, name)
	assert.Must(t, g.Release())
	return name, g.Fence()
}

func failedAcquire(t *testing.T, p *failing, f failure) {
	name, last := p.lockName(t)
	over := p.fail(t, fault.Acquire, f)
	g, err := p.w.try(t, p.m, name)
	switch f.means {
	case doneUnknown: // a later write finds the acquisition
		p.w.wantGuard(t, p.m, g, err)
		if g.Fence() != last+1 {
			t.Errorf("fence %d after %d", g.Fence(), last)
		}
	case notDone:
		wantErr(t, err, distlock.ErrUnavailable)
	default:
		wantErr(t, err, distlock.ErrOutcomeUnknown)
	}
	if err != nil {
		if g != nil {
			t.Error("the call returned a guard and an error")
		}
		p.w.wantFreed(t, name)
	}
	over()
	if next := p.w.wait(t, p.m, name); next.Fence() <= last {
		t.Errorf("fence %d after %d", next.Fence(), last)
	}
}

func failedEviction(t *testing.T, p *failing, f failure) {
	d := p.w.plantCondemned(t)
	over := p.fail(t, fault.Evict, f)
	g, err := p.w.try(t, p.m, d.name)
	if f.means == notDone {
		wantErr(t, err, distlock.ErrUnavailable)
		if l := p.w.lock(t, d.name); l.Process != d.process || l.Fence != 1<<40 {
			t.Errorf("not carried out, and the document shows %+v", l)
		}
	} else { // another read shows whether the holder was evicted
		p.w.wantGuard(t, p.m, g, err)
		if g.Fence() != 1<<40+1 || (g.TakeoverEvidence() == "") != (f.means == doneUnknown) {
			t.Errorf("fence %d, taken over %q", g.Fence(), g.TakeoverEvidence())
		}
	}
	over()
	if g := p.w.wait(t, p.m, d.name); g.Fence() <= 1<<40 {
		t.Errorf("fence %d", g.Fence())
	} else if err := g.Release(); err != nil {
		t.Error(err)
	}
}

func failedPing(t *testing.T, p *failing, f failure) {
	name, _ := p.lockName(t)
	g := p.w.mustTry(t, p.m, name)
	before := p.m.Stats()
	over := p.fail(t, fault.Ping, f)
	eventually(t, 30*time.Second, "a ping fails, and then they succeed", func() bool {
		now := p.m.Stats()
		return now.Failures > before.Failures && now.Pings > before.Pings+2
	})
	over()
	if now := p.m.Stats(); now.Processes != before.Processes {
		t.Errorf("the process has a new id: %+v", now)
	}
	assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context()), g.Release()))
}

func failedRelease(t *testing.T, p *failing, f failure) {
	name, _ := p.lockName(t)
	g := p.w.mustTry(t, p.m, name)
	over := p.fail(t, fault.Release, f)
	if err := g.Release(); err != nil {
		t.Errorf("Release: %v, want nil after another try", err)
	}
	if f.means != doneLate && p.w.lock(t, name).Held {
		t.Error("the lock is held after its release")
	}
	over()
	p.w.wantFreed(t, name)
	assert.NoErr(t, assert.Err(p.w.try(t, p.m, name)))
}
