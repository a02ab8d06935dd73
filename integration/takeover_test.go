package integration_test

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// A dead is the process of a holder that is planted: it will never ping again.
type dead struct {
	w       *world
	name    string // of the lock
	process string
}

// plantHeld plants a lock whose holder has a planted ping, or none. The lock comes first: a ping
// that no lock names may be pruned by anybody.
func (w *world) plantHeld(t testing.TB, ping bson.D, extra ...bson.E) dead {
	t.Helper()
	d := dead{w: w, name: w.name("balancer"), process: w.name("dead:1:1700000000:x")}
	w.plant(t, catalog.LocksCollection, append(bson.D{
		field("_id", d.name), field("state", int32(1)), field("process", d.process),
		field("who", d.process+":main:1"), field("why", "doing balance round"),
		field("when", bson.NewDateTimeFromTime(w.now(t).Add(-time.Hour))),
		field("ts", bson.NewObjectID()), field("fence", int64(1)<<40), field("rev", int64(1)),
	}, extra...))
	if ping != nil {
		w.plant(t, catalog.PingsCollection, append(bson.D{field("_id", d.process)}, ping...))
	}
	return d
}

// pinged is a ping document of ours, except the _id: a holder that pinged every 50 ms until age
// ago, by the server's clock and by its own.
func (w *world) pinged(t testing.TB, age time.Duration) bson.D {
	t.Helper()
	at := bson.NewDateTimeFromTime(w.now(t).Add(-age))
	return bson.D{
		field("ping", at), field("local", at), field("seq", int64(7)),
		field("pingMS", int64(50)), field("takeoverMS", int64(1000)),
	}
}

// refused asks as a contender does, again and again for the time, and is refused each time; the
// document is left alone. It returns the last reason.
func (d dead) refused(t testing.TB, m *distlock.Manager, during time.Duration) *distlock.HeldError {
	t.Helper()
	var last *distlock.HeldError
	d.w.untouched(t, d.name, func() {
		for end := time.Now().Add(during); time.Now().Before(end); {
			_, err := d.w.try(t, m, d.name)
			last = heldError(t, err)
			time.Sleep(40 * time.Millisecond) // between two asks
		}
	})
	return last
}

// taken waits until the lock is taken over, and checks what that left.
func (d dead) taken(t testing.TB, m *distlock.Manager, rule string) {
	t.Helper()
	g := d.w.wait(t, m, d.name)
	if !strings.HasPrefix(g.TakeoverEvidence(), "rule "+rule+":") {
		t.Errorf("taken over on %q, want rule %s", g.TakeoverEvidence(), rule)
	}
	if g.Fence() != 1<<40+1 {
		t.Errorf("fence %d, want %d", g.Fence(), 1<<40+1)
	}
	if l := d.w.lock(t, d.name); l.Process != m.Process() || l.TS != g.Session() {
		t.Errorf("the document shows %+v", l)
	}
}

// The dead holder of last night: every clock says that its ping is older than the takeover time, so
// three of its ping intervals are watched and not a minute.
func TestTakeover_OldPing_AllWitnessesAgree_TakesAfterThreeIntervals(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		d := w.plantHeld(t, w.pinged(t, time.Hour))
		m := w.start(t, func(cfg *distlock.Config) {
			cfg.Takeover = time.Minute
			cfg.MaxClockSkew = 20 * time.Second // for a server that MONGODLM_TEST_URI names
		})
		_, err := w.try(t, m, d.name)
		heldError(t, err) // never at the first look
		d.taken(t, m, "witnesses")
		raw := w.document(t, catalog.PingsCollection, d.process)
		mark := raw.Lookup("condemned").Document()
		wantShape(t, mark, map[string]bson.Type{
			"by": bson.TypeString, "at": bson.TypeDateTime, "evidence": bson.TypeString,
		})
		if raw.Lookup("seq").Int64() != 7 {
			t.Errorf("condemning changed seq: %v", raw)
		}
	})
}

// F14: a holder without a ping document is watched, as mongos 2.0 and later did, not taken for very
// old at once.
func TestTakeover_NoPingDocument(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		d := w.plantHeld(t, nil, field("takeoverMS", int64(1000))) // it is one of ours
		watching := w.start(t, shortTakeover)
		if h := d.refused(t, watching, watching.Config().Takeover/2); h.PingAge >= 0 {
			t.Errorf("told %+v", h)
		}
		d.taken(t, watching, "watch")
		raw := w.document(t, catalog.PingsCollection, d.process)
		// MongoDB's own manager cannot read a ping document without ping.
		wantShape(t, raw, map[string]bson.Type{
			"_id": bson.TypeString, "ping": bson.TypeDateTime, "condemned": bson.TypeEmbeddedDocument,
		})
	})
}
