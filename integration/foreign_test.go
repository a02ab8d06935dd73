package integration_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// A generation is one that wrote these documents: what it left while it held a lock, and its ping.
type generation struct {
	name string
	lock bson.D // except _id and process
	ping bson.D // except _id; written every 30 s
}

func generations(now time.Time) []generation {
	session := must(bson.ObjectIDFromHex("4d41c0b2cc1d2ad1a7dd6a5c"))
	when := bson.NewDateTimeFromTime(time.Date(2011, 5, 30, 12, 0, 0, 0, time.UTC))
	mongos := func(state any) bson.D {
		return bson.D{
			field("state", state), field("ts", session), field("when", when),
			field("who", "tp02.example.net:27017:1296156849:1804289383:Balancer:846930886"),
			field("why", "doing balance round"),
		}
	}
	ping := bson.D{field("ping", bson.NewDateTimeFromTime(now.Add(-time.Hour)))} // not to be pruned
	return []generation{
		{"Mongos2011", mongos(int32(1)), ping},
		{"Mongos26", mongos(int32(2)), ping},
		{"Mongos26FromTheShell", mongos(2.0), ping},
		// MongoDB's own manager over a document that was ours: it leaves our fields as they are.
		{"ConfigServer44", bson.D{
			field("state", int32(2)), field("ts", session), field("when", when),
			field("who", "ConfigServer:conn2"), field("why", "createDatabase"),
			field("fence", int64(12)), field("takeoverMS", int64(2000)), field("rev", int64(33)),
		}, ping},
	}
}

// F19, rule 4 of section 6: a foreign holder is understood, is given its own generation's fifteen
// minutes whatever our takeover time is, cannot be condemned, and is overtaken by watching alone.
func TestForeignHolder_IsWatchedForItsOwnTime(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		patient := w.start(t, shortTakeover)
		hasty := w.start(t, func(cfg *distlock.Config) {
			shortTakeover(cfg)
			cfg.ForeignTakeover = cfg.Takeover // so that a test need not wait
		})
		var watching sync.WaitGroup
		for _, g := range generations(w.now(t)) {
			d := dead{w, w.name(g.name), w.name(g.name + ":27017:1296156849:1804289383")}
			w.plant(t, catalog.LocksCollection,
				append(bson.D{field("_id", d.name), field("process", d.process)}, g.lock...))
			w.plant(t, catalog.PingsCollection, append(bson.D{field("_id", d.process)}, g.ping...))
			watching.Go(func() { foreignHolder(t, d, g, patient, hasty) })
		}
		watching.Wait()
	})
}

// foreignHolder runs beside others, so it must not end the test.
func foreignHolder(t *testing.T, d dead, g generation, patient, hasty *distlock.Manager) {
	why := raw(g.lock).Lookup("why").StringValue()
	_, err := patient.Lock(d.name).TryLock(t.Context())
	var h *distlock.HeldError
	if !errors.As(err, &h) || h.Process != d.process || h.Why != why || h.TakeoverIn < 14*time.Minute {
		t.Errorf("%s: told %v, want held by %s, takeover in 15 minutes", g.name, err, d.process)
	}
	begun := time.Now()
	next, err := hasty.Lock(d.name).Lock(t.Context(), distlock.WaitAtMost(60*time.Second))
	if err != nil {
		t.Errorf("%s: %v", g.name, err)
		return
	}
	d.w.keep(next)
	if took := time.Since(begun); took < hasty.Config().Takeover {
		t.Errorf("%s: taken after %v, before the takeover time", g.name, took)
	}
	if !strings.HasPrefix(next.TakeoverEvidence(), "rule watch:") {
		t.Errorf("%s: taken over on %q", g.name, next.TakeoverEvidence())
	}
	ping, err := d.w.db.Collection(catalog.PingsCollection).FindOne(t.Context(), byID(d.process)).Raw()
	if err != nil || !slices.Equal(ping, raw(append(bson.D{field("_id", d.process)}, g.ping...))) {
		t.Errorf("%s: the foreign ping was touched: %v %v", g.name, ping, err)
	}
	if err := next.Release(); err != nil {
		t.Errorf("%s: %v", g.name, err)
	}
	again, err := patient.Lock(d.name).TryLock(t.Context())
	if err != nil || again.Fence() <= next.Fence() {
		t.Errorf("%s: released and acquired again: %v", g.name, err)
	}
	d.w.keep(again)
}

// Rule 4: a foreign holder that has no ping, since it has never pinged or has stopped in order,
// gets the same time, also where it took the lock from one of ours. No ping is made for it, so that
// nothing is held against its next start.
func TestForeignHolder_WithoutPing_GetsItsOwnTime(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m := w.start(t, func(cfg *distlock.Config) {
			shortTakeover(cfg)
			cfg.ForeignTakeover = 2 * cfg.Takeover
		})
		bare := w.plantHeld(t, nil)
		over := dead{w, w.name("taken"), w.name("ConfigServer")}
		w.plant(t, catalog.LocksCollection, bson.D{
			field("_id", over.name), field("state", int32(2)), field("process", over.process),
			field("ts", bson.NewObjectID()), field("when", bson.NewDateTimeFromTime(w.now(t))),
			field("who", "ConfigServer:conn2"), field("why", "createDatabase"),
			field("fence", int64(1)<<40), field("takeoverMS", int64(1000)), field("rev", int64(33)),
		})
		begun := time.Now()
		for _, d := range []dead{bare, over} {
			d.taken(t, m, "watch")
			if took := time.Since(begun); took < m.Config().ForeignTakeover {
				t.Errorf("%s was taken after %v", d.name, took)
			}
			if ping := w.document(t, catalog.PingsCollection, d.process); ping != nil {
				t.Errorf("a ping was made for it: %v", ping)
			}
		}
	})
}

func raw(doc bson.D) bson.Raw {
	data, err := bson.Marshal(doc)
	if err != nil {
		panic(err) // our own documents
	}
	return data
}

func must(id bson.ObjectID, err error) bson.ObjectID {
	if err != nil {
		panic(err) // a constant
	}
	return id
}

// What a foreign client released is free, whatever number it wrote: it is acquired at once.
func TestForeignRelease_IsFree(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m := w.start(t, nil)
		for name, doc := range map[string]bson.D{
			"2011 before anybody held it": {field("state", int32(0)), field("who", "")},
			"by a shell":                  {field("state", 0.0)},
			"int64":                       {field("state", int64(0))},
		} {
			id := w.name(name)
			w.plant(t, catalog.LocksCollection, append(bson.D{field("_id", id)}, doc...))
			g := w.mustTry(t, m, id)
			if raw := w.document(t, catalog.LocksCollection, id); raw.Lookup("state").Int32() != 1 {
				t.Errorf("%s: %v", name, raw)
			}
			if err := g.Release(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// F1, F2, F3, F4: a document that cannot be understood is an error that names it and its field; it
// is neither free nor taken over, and nothing touches it.
func TestMalformedDocument_IsNamedAndLeftAlone(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m := w.start(t, func(cfg *distlock.Config) { shortTakeover(cfg) })
		session := bson.NewObjectID()
		for name, c := range map[string]struct {
			field string
			doc   bson.D
		}{
			"no state":   {"state", bson.D{field("ts", session)}},
			"state text": {"state", bson.D{field("state", "0"), field("ts", session)}},
			"state 0.5":  {"state", bson.D{field("state", 0.5), field("ts", session)}},
			"no ts":      {"ts", bson.D{field("state", int32(1)), field("who", "")}},
			"ts hex":     {"ts", bson.D{field("state", int32(1)), field("ts", session.Hex())}},
			"process 7": {"process", bson.D{
				field("state", int32(1)), field("ts", session), field("process", int32(7)),
			}},
			"fence a text": {"fence", bson.D{field("state", int32(0)), field("fence", "x")}},
		} {
			id := w.name(name)
			w.plant(t, catalog.LocksCollection, append(bson.D{field("_id", id)}, c.doc...))
			w.untouched(t, id, func() {
				_, err := w.try(t, m, id)
				var bad *distlock.MalformedError
				if !errors.As(err, &bad) {
					t.Fatalf("%s: %v", name, err)
				}
				if bad.Collection != catalog.LocksCollection || bad.ID != id || bad.Field != c.field {
					t.Errorf("%s: told %+v", name, bad)
				}
			})
		}
	})
}
