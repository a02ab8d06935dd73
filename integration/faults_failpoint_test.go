package integration_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
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
	{"175 query plan killed", bson.D{field("errorCode", 175)}, notDoneUnknown},
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
	{"blocked", bson.D{field("blockConnection", true)}, doneLate},
}

// E1, E5 to E7, I1 to I3, I7 to I9: If the server fails the command of an acquisition, a release, a
// ping or a takeover, the operation still ends with a correct outcome. The cases run one after the
// other, because a server has one fail point for commands.
func TestFaults_ServerFailsOneCommand(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		p := w.failing(t)
		for _, f := range failures {
			t.Run(f.name+" at acquire", func(t *testing.T) { failedAcquire(t, p, f) })
			t.Run(f.name+" at release", func(t *testing.T) { failedRelease(t, p, f) })
			t.Run(f.name+" at ping", func(t *testing.T) { failedPing(t, p, f) })
			t.Run(f.name+" at takeover", func(t *testing.T) { failedTakeover(t, p, f) })
		}
	})
}

// pingApp is the end of the appName of the client for pings.
const pingApp = "-ping"

// failing is a process and the fail point for its commands.
type failing struct {
	w     *world
	store *fault.Catalog
	m     *distlock.Manager
	app   string
	next  int // the number of lock names so far
}

func (w *world) failing(t *testing.T) *failing {
	t.Helper()
	p := &failing{w: w, app: "fails-" + bson.NewObjectID().Hex()}
	// The clients poll the state of the server. Monitoring by a stream would report only changes. Like
	// the client of mongocatalog.Dial, the clients do not retry if the server is overloaded.
	client := func(app string) *mongo.Client {
		return privateClient(t, options.Client().ApplyURI(w.d.uri).SetAppName(app).
			SetMaxAdaptiveRetries(0).
			SetServerMonitoringMode("poll").SetHeartbeatInterval(500*time.Millisecond))
	}
	store, open := w.faulty(t, client(p.app), client(p.app+pingApp))
	p.store = store
	p.m = w.start(t, func(cfg *distlock.Config) { open(cfg); cfg.Takeover = 40 * time.Second })
	return p
}

// fail makes the server fail the command of the next operation op. The returned function switches
// the fail point off and checks that the server failed exactly one command.
func (p *failing) fail(t *testing.T, op fault.Op, f failure) (over func()) {
	t.Helper()
	app := p.app
	if op == fault.Ping {
		app += pingApp
	}
	data := append(bson.D{field("failCommands", bson.A{commandOf(op)}), field("appName", app)},
		f.data...)
	if f.means == doneLate {
		data = append(data, field("blockTimeMS", 2*p.w.d.commandLimit().Milliseconds()))
	}
	before := p.entered(t) // must come first, because it switches the fail point off
	strikeAt(p.store, op, func() {
		point := bson.D{field("configureFailPoint", "failCommand"),
			field("mode", bson.D{field("times", 1)}), field("data", data)}
		assert.NoErr(t, p.w.d.app.Database("admin").RunCommand(t.Context(), point).Err())
	})
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

// A failed ping ends neither the term nor the process id. A later ping succeeds.
func failedPing(t *testing.T, p *failing, f failure) {
	name, _ := p.lockName(t)
	g := p.w.mustTry(t, p.m, name)
	process, before := p.m.Process(), p.m.Stats()
	over := p.fail(t, fault.Ping, f)
	eventually(t, freeLimit, "a ping fails", func() bool {
		return p.m.Stats().Failures > before.Failures
	})
	failed := p.m.Stats()
	eventually(t, freeLimit, "a later ping succeeds", func() bool {
		return p.m.Stats().Pings > failed.Pings
	})
	over()
	if p.m.Process() != process {
		t.Errorf("the process id is %s, was %s", p.m.Process(), process)
	}
	assert.NoErr(t, g.Err())
	wantReleased(t, g)
}

// A failed eviction of a dead holder gives the lock to at most one process, with a larger fence.
func failedTakeover(t *testing.T, p *failing, f failure) {
	name, last := p.lockName(t)
	now, dead := bson.NewDateTimeFromTime(time.Now()), "dead:1:1:"+bson.NewObjectID().Hex()
	p.w.plant(t, catalog.PingsCollection, bson.D{field("_id", dead), field("ping", now),
		field("seq", int64(1)), field("condemned", bson.D{field("by", "test")})})
	assert.NoErr(t, assert.Err(p.w.db.Collection(catalog.LocksCollection).
		UpdateOne(t.Context(), byID(name), set(field("state", 2), field("ts", bson.NewObjectID()),
			field("process", dead), field("who", dead+":go:1"), field("when", now)))))
	over := p.fail(t, fault.Evict, f)
	g, err := p.w.try(t, p.m, name)
	switch {
	case err == nil:
		wantReleased(t, g)
	case g != nil || !errors.Is(err, distlock.ErrUnavailable) &&
		!errors.Is(err, distlock.ErrOutcomeUnknown):
		t.Errorf("TryLock: %v, %v", g, err)
	}
	over()
	if next := p.w.wait(t, p.m, name); next.Fence() <= last {
		t.Errorf("fence %d after %d", next.Fence(), last)
	}
}
