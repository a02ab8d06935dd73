package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// RunDifferential applies the same random operations to two empty stores and compares all results
// and documents. It ignores the server's dates and the sessions that Break creates. It enlarges a
// small fence before a grant, which would otherwise raise the fence to the server's clock. It
// prints the command that repeats a failed run.
func RunDifferential(t *testing.T, a, b Store) {
	t.Helper()
	run := 0
	check := func(name string, steps func(m *machine) map[string]func(*rapid.T)) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				run++
				m := &machine{
					t: t, ctx: context.Background(), stores: [2]Store{a, b},
					prefix: fmt.Sprintf("run-%d-", run), known: map[bson.ObjectID]int{},
				}
				t.Repeat(steps(m))
			})
		})
	}
	check("Everything", func(m *machine) map[string]func(*rapid.T) {
		all := m.queueSteps()
		maps.Copy(all, m.otherSteps())
		return all
	})
	check("Queue", (*machine).queueSteps)
}

// otherSteps returns the steps that do not involve queues.
func (m *machine) otherSteps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"acquire": func(t *rapid.T) {
			m.apply(t, transition.Enter{Request: m.newGrant(t), How: catalog.TryPlain})
		},
		"confirm": func(t *rapid.T) { m.apply(t, transition.Confirm{Request: m.oldRequest(t)}) },
		"seed": func(t *rapid.T) {
			least := rapid.Int64Range(0, 20).Draw(t, "at least")
			m.apply(t, transition.SeedFence{Session: m.oldRequest(t).Session, AtLeast: least})
		},
		"renew": func(t *rapid.T) {
			r := renewal(m.oldRequest(t), rapid.Int64Range(1, 3).Draw(t, "number"))
			r.Local = r.Local.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "twin")) * time.Second)
			m.apply(t, transition.Renew{Renewal: r})
		},
		"break": func(t *rapid.T) {
			s, fence := catalog.Session{Name: m.name(t)}, rapid.Int64Range(0, 5).Draw(t, "fence")
			m.apply(t, transition.Break{Session: s, Fence: fence, Why: "why"})
		},
		"ping": m.ping,
		"condemn": func(t *rapid.T) {
			c := transition.Condemn{
				Process: m.process(t), How: catalog.Condemnation{By: m.prefix + "judge", Evidence: "drawn"},
			}
			if seq := rapid.Int64Range(-1, 4).Draw(t, "watched seq"); seq >= 0 {
				c.Watched = &catalog.Ping{Process: c.Process, Seq: seq, HasSeq: seq > 0}
			}
			m.applyPing(t, c)
		},
		"removePing": func(t *rapid.T) { m.applyPing(t, transition.RemovePing{Process: m.process(t)}) },
		"observe":    m.observe,
		"prune":      m.prune,
		"plantLock":  m.plantLock,
		"plantPing":  m.plantPing,
		"delete":     m.delete,
	}
}

// apply applies a transition to both stores.
func (m *machine) apply(t *rapid.T, change catalog.Transition) {
	m.both(t, fmt.Sprintf("%T %+v", change, change), func(s Store) string {
		l, grants, err := s.Catalog.Apply(m.ctx, change)
		switch change.(type) {
		case transition.Leave, transition.Evict, transition.GrantNext:
			return fmt.Sprintf("%+v %s", grants, verdict(err))
		case transition.Renew, transition.PutFirst, transition.RequestYield:
			return verdict(err)
		}
		return m.lock(l, err)
	})
}

// applyLifted is apply after a small fence of the lock was enlarged.
func (m *machine) applyLifted(t *rapid.T, change catalog.Transition) {
	m.lift(t, change.On())
	m.apply(t, change)
}

func (m *machine) applyPing(t *rapid.T, change catalog.PingChange) {
	m.both(t, fmt.Sprintf("%T", change), func(s Store) string {
		return verdict(s.Catalog.ApplyPing(m.ctx, change))
	})
}

// A machine is one run over both stores. No other run uses the names of its locks and processes.
type machine struct {
	t      *rapid.T
	ctx    context.Context
	stores [2]Store
	prefix string
	grants []catalog.Request
	known  map[bson.ObjectID]int // numbers of this run's sessions
	ids    uint32
}

func (m *machine) name(t *rapid.T) string {
	return m.prefix + rapid.SampledFrom([]string{"x", "$y.z"}).Draw(t, "name")
}

func (m *machine) process(t *rapid.T) string {
	return m.prefix + rapid.SampledFrom([]string{"p", "q"}).Draw(t, "process")
}

// session returns a new session. A repeated run gets the same sessions.
func (m *machine) session() bson.ObjectID {
	m.ids++
	ts := bson.ObjectID{0x40, 1, 2, 3, 4, 5, 6, 7, 8, byte(m.ids >> 16), byte(m.ids >> 8), byte(m.ids)}
	m.known[ts] = int(m.ids)
	return ts
}

func (m *machine) newGrant(t *rapid.T) catalog.Request {
	r := request(m.name(t), m.process(t))
	r.TS = m.session()
	m.grants = append(m.grants, r)
	return r
}

// oldRequest draws an earlier attempt. Recent attempts are drawn more often.
func (m *machine) oldRequest(t *rapid.T) catalog.Request {
	if len(m.grants) == 0 {
		return m.newGrant(t)
	}
	back := rapid.IntRange(0, min(len(m.grants), 4)-1).Draw(t, "attempts back")
	return m.grants[len(m.grants)-1-back]
}

// both runs op on both stores and compares the results.
func (m *machine) both(t *rapid.T, verb string, op func(Store) string) {
	t.Helper()
	first, second := op(m.stores[0]), op(m.stores[1])
	if first != second {
		t.Fatalf("%s\nfirst  %s\nsecond %s", verb, first, second)
	}
	t.Logf("%s: %s", verb, first)
}

func (m *machine) lock(l catalog.Lock, err error) string {
	if err != nil {
		return verdict(err)
	}
	l.When = time.Time{}
	l.Sharers, l.Waiters = undated(l.Sharers), undated(l.Waiters)
	l.Leases = slices.Clone(l.Leases)
	for i := range l.Leases {
		l.Leases[i].At = time.Time{}
	}
	ts := l.TS
	l.TS = bson.NilObjectID
	return fmt.Sprintf("%+v session %s", l, m.masked(ts))
}

// masked returns the name of a session of this run, or "new" for a session that a store created.
func (m *machine) masked(ts bson.ObjectID) string {
	if n, ok := m.known[ts]; ok {
		return fmt.Sprint(n)
	}
	if ts.IsZero() {
		return "none"
	}
	return "new"
}

// verdict returns the kind of an error that callers distinguish.
func verdict(err error) string {
	if err == nil {
		return "done"
	}
	var bad *catalog.MalformedError
	if errors.As(err, &bad) {
		return fmt.Sprintf("malformed %s %q %s", bad.Collection, bad.ID, bad.Field)
	}
	var limit *catalog.PermitMismatchError
	if errors.As(err, &limit) {
		return fmt.Sprintf("limit %q %d %d", limit.Name, limit.Recorded, limit.Asked)
	}
	var twin *catalog.TwinError
	if errors.As(err, &twin) {
		return fmt.Sprintf("twin %q %d: %s", twin.Process, twin.Sent, pingText(&twin.Found))
	}
	var condemned *catalog.CondemnedError
	if errors.As(err, &condemned) {
		return fmt.Sprintf("condemned by %q: %q", condemned.Condemnation.By,
			condemned.Condemnation.Evidence)
	}
	if kinds := sentinels(err); len(kinds) > 0 {
		return strings.Join(kinds, ", ")
	}
	return "other: " + err.Error()
}

func (m *machine) ping(t *rapid.T) {
	b := beat(m.process(t), rapid.Int64Range(1, 5).Draw(t, "number"))
	later := b.Local.Add(time.Second)
	b.Mine = rapid.SampledFrom([][]time.Time{nil, nil, {b.Local}, {later, b.Local}}).Draw(t, "mine")
	b.Local = rapid.SampledFrom([]time.Time{b.Local, later}).Draw(t, "local")
	m.both(t, "ping", func(s Store) string {
		p, err := s.Catalog.Ping(m.ctx, b)
		if err != nil {
			return verdict(err)
		}
		p.At = time.Time{}
		return fmt.Sprintf("%+v", p)
	})
}

func (m *machine) prune(t *rapid.T) {
	m.both(t, "prune", func(s Store) string {
		n, err := pruneOld(m.ctx, s.Catalog, time.UnixMilli(1_000_000_000_000))
		return fmt.Sprint(n, " ", verdict(err))
	})
}

// observe compares the results of all reads.
func (m *machine) observe(t *rapid.T) {
	name, process := m.name(t), m.process(t)
	m.both(t, "observe", func(s Store) string {
		look, err := catalog.LookAt(m.ctx, s.Catalog, name)
		text := []string{verdict(err), m.lookText(look), m.lock(s.Catalog.Read(m.ctx, name))}
		held, err := s.Catalog.Held(m.ctx, process)
		for _, h := range held {
			text = append(text, fmt.Sprint(h.Name, " ", m.masked(h.TS), " ", h.Waits))
		}
		text = append(text, verdict(err))
		for row, err := range s.Catalog.List(m.ctx, false) {
			if err == nil && strings.HasPrefix(row.Lock.Name, m.prefix) {
				text = append(text, m.lock(*row.Lock, nil))
			}
		}
		return strings.Join(text, "\n  ")
	})
}

func (m *machine) lookText(look catalog.Snapshot) string {
	var text []string
	if look.Lock != nil {
		text = append(text, m.lock(*look.Lock, nil))
	}
	if look.LockErr != nil {
		text = append(text, verdict(look.LockErr))
	}
	if look.PingErr != nil {
		text = append(text, verdict(look.PingErr))
	}
	return strings.Join(append(text, pingText(look.Ping), pulsesText(look.Pings)), "; ")
}

func pingText(p *catalog.Ping) string {
	if p == nil {
		return "no ping"
	}
	return fmt.Sprint(p.Process, p.Seq, p.HasSeq, p.Takeover, p.Interval, p.Local,
		p.Condemned != nil)
}

// plantLock replaces a lock document with one that has odd fields.
func (m *machine) plantLock(t *rapid.T) {
	doc := bson.D{field("_id", m.name(t))}
	add := adder(t, &doc)
	g := m.newGrant(t)
	g.Name = doc[0].Value.(string)
	m.grants[len(m.grants)-1] = g
	add("state", int32(0), int32(1), int32(2), int64(0), 0.0, 1.0, 2.7, "0", nil, missing,
		bson.A{int32(0)}, bson.A{int32(1)}) // a filter also matches an array's elements
	add("ts", g.TS, g.TS, g.TS, g.TS.Hex(), nil, missing)
	add("process", g.Process, g.Process, "", nil, missing, int32(5))
	add("fence", missing, missing, int32(3), int64(4), int64(1<<63-1), "x")
	add("rev", missing, missing, missing, int64(3), "x")
	add("when", missing, bson.DateTime(7), "x")
	add("takeoverMS", missing, int64(1000), int64(-1), "x")
	add("extra", missing, bson.D{field("a", 1)})
	sharer, stale := sharer(g, 3), sharer(m.newGrant(t), 4)
	waiter, next := m.waiter(t, g.Name), m.waiter(t, g.Name)
	nobody := without(waiter, "process")
	add("waiters", missing, missing, bson.A{}, bson.A{waiter}, bson.A{waiter, next}, bson.A{nobody},
		int32(5))
	add("sharers", missing, missing, bson.A{}, bson.A{sharer}, bson.A{sharer, stale}, bson.A{stale},
		bson.A{int32(5)}, "x")
	add("mode", missing, "shared", "permit", "x", int32(5))
	add("limit", missing, int32(1), int32(2), "x")
	m.plant(t, catalog.LocksCollection, doc)
}

func (m *machine) plantPing(t *rapid.T) {
	doc := bson.D{field("_id", m.process(t))}
	add := adder(t, &doc)
	add("ping", bson.DateTime(7), bson.DateTime(7), bson.DateTime(2_000_000_000_000), "x", missing)
	add("seq", int64(1), int32(2), 3.0, missing, "x")
	local := bson.NewDateTimeFromTime(beat("", 0).Local)
	add("local", local, local+1, missing, "x", bson.A{local})
	add("condemned", missing, missing, true, bson.D{field("by", "z")})
	m.plant(t, catalog.PingsCollection, doc)
}

// missing represents an absent field.
type missingField struct{}

var missing = missingField{}

// adder returns a function that adds a field with one of the values to a document.
func adder(t *rapid.T, doc *bson.D) func(key string, values ...any) {
	return func(key string, values ...any) {
		v := rapid.SampledFrom(values).Draw(t, key)
		if _, absent := v.(missingField); !absent {
			*doc = append(*doc, field(key, v))
		}
	}
}

func (m *machine) plant(t *rapid.T, collection string, doc bson.D) {
	id := doc[0].Value.(string)
	m.both(t, fmt.Sprint("plant ", doc), func(s Store) string {
		return fmt.Sprint(s.Delete(m.ctx, collection, id), s.Insert(m.ctx, collection, doc))
	})
}

func (m *machine) delete(t *rapid.T) {
	name := m.name(t)
	m.both(t, "delete", func(s Store) string {
		return fmt.Sprint(s.Delete(m.ctx, catalog.LocksCollection, name))
	})
}

// compareDocuments compares all documents after each step.
func (m *machine) compareDocuments(t *rapid.T) {
	for _, d := range []struct{ collection, id string }{
		{catalog.LocksCollection, "x"}, {catalog.LocksCollection, "$y.z"},
		{catalog.PingsCollection, "p"}, {catalog.PingsCollection, "q"},
	} {
		m.both(t, d.collection+" "+d.id, func(s Store) string {
			raw, err := s.Document(m.ctx, d.collection, m.prefix+d.id)
			if err != nil {
				return err.Error()
			}
			if raw == nil {
				return "none"
			}
			return strings.Join(lines("", raw, m.mask), "\n  ")
		})
	}
}

// mask names the values that a store chooses.
func (m *machine) mask(v bson.RawValue) (string, bool) {
	if ts, ok := v.ObjectIDOK(); ok {
		return "session " + m.masked(ts), true
	}
	ms, ok := v.DateTimeOK()
	return "server's clock", ok && ms > 1_700_000_200_000 && ms < 2_000_000_000_000
}
