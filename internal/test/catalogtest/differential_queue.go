package catalogtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// queueSteps returns the steps for queues: operations of the store, foreign releases and takeovers,
// and planted queues.
func (m *machine) queueSteps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":      m.compareDocuments,
		"enter": m.enter,
		"crowd": m.enter, // enter again, so that more sessions enter than leave
		"leave": func(t *rapid.T) {
			m.applyLifted(t, transition.Leave{Session: m.oldRequest(t).Session})
		},
		"evict":      m.evict,
		"grant next": func(t *rapid.T) { m.applyLifted(t, transition.GrantNext{Name: m.name(t)}) },
		"put first": func(t *rapid.T) {
			m.applyLifted(t, transition.PutFirst{Session: m.oldRequest(t).Session, To: m.oldRequest(t).TS})
		},
		"request yield": func(t *rapid.T) {
			m.applyLifted(t, transition.RequestYield{Name: m.name(t), By: "$ts", Why: "$why"})
		},
		"held or free":    m.heldOrFree,
		"attend":          m.attend,
		"waiting":         m.waiting,
		"foreignRelease":  m.foreignRelease,
		"foreignOvertake": m.foreignOvertake,
		"plantLine":       m.plantLine,
	}
}

// undated returns a queue without the dates of the server's clock.
func undated(parties []catalog.Participant) []catalog.Participant {
	parties = slices.Clone(parties)
	for i := range parties {
		parties[i].Since = time.Time{}
	}
	return parties
}

// lift enlarges a small fence of a lock document in both stores. A grant then increments the fence
// and does not use the store's clock.
func (m *machine) lift(t *rapid.T, name string) {
	m.both(t, "lift the fence", func(s Store) string {
		raw, err := s.Document(m.ctx, catalog.LocksCollection, name)
		if err != nil {
			return err.Error()
		}
		doc := free(name)
		if raw != nil {
			doc = nil
			if err := bson.Unmarshal(raw, &doc); err != nil {
				return err.Error()
			}
			v := raw.Lookup("fence")
			n, whole := v.AsInt64OK()
			if v.Type != 0 && (!whole || n < 0 || n >= 1<<31) {
				return "left"
			}
		}
		doc = with(doc, field("fence", planted))
		return fmt.Sprint("lifted ", s.Delete(m.ctx, catalog.LocksCollection, name),
			s.Insert(m.ctx, catalog.LocksCollection, doc))
	})
}

// rewrite changes fields of a lock document in both stores, as an operator would.
func (m *machine) rewrite(t *rapid.T, name string, fields ...bson.E) {
	m.both(t, fmt.Sprint("rewrite ", fields), func(s Store) string {
		raw, err := s.Document(m.ctx, catalog.LocksCollection, name)
		if raw == nil || err != nil {
			return fmt.Sprint("nothing ", err)
		}
		var doc bson.D
		if err := bson.Unmarshal(raw, &doc); err != nil {
			return err.Error()
		}
		return fmt.Sprint(s.Delete(m.ctx, catalog.LocksCollection, name),
			s.Insert(m.ctx, catalog.LocksCollection, with(doc, fields...)))
	})
}

func (m *machine) foreignRelease(t *rapid.T) { m.rewrite(t, m.name(t), field("state", int32(0))) }

// plantLine inserts a full or nearly full queue of one or two processes. All its entries have one
// mode.
func (m *machine) plantLine(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 { // a long queue makes every step slow
		t.Skip("not now")
	}
	line, name := bson.A{}, m.name(t)
	first, last := m.process(t), m.process(t)
	const most = catalog.MaxWaiters
	kind := m.kind(t, catalog.Request{})
	for i := range rapid.IntRange(most-2, most).Draw(t, "waiters") {
		r := request(name, first)
		r.Mode, r.Limit = kind.Mode, kind.Limit
		if r.TS = m.session(); i == 0 {
			r.Process = last
		}
		line = append(line, plantedWaiter(r))
	}
	m.rewrite(t, name, field("waiters", line))
}

func (m *machine) foreignOvertake(t *rapid.T) {
	g := m.newGrant(t)
	m.rewrite(t, g.Name, field("state", int32(2)), field("ts", g.TS), field("process", g.Process),
		field("when", bson.DateTime(7)))
}

func (m *machine) kind(t *rapid.T, r catalog.Request) catalog.Request {
	modes := []catalog.Mode{
		catalog.Exclusive, catalog.Exclusive, catalog.Shared, catalog.Shared, catalog.Permit,
	}
	if r.Mode = rapid.SampledFrom(modes).Draw(t, "mode"); r.Mode == catalog.Permit {
		r.Limit = rapid.SampledFrom([]int32{1, 2, 2}).Draw(t, "limit")
	}
	return r
}

// waiter returns the queue entry of a new attempt, as an operator would write it. sharer returns
// the entry of a holder.
func (m *machine) waiter(t *rapid.T, name string) bson.D {
	g := m.kind(t, m.newGrant(t))
	g.Name = name
	m.grants[len(m.grants)-1] = g
	return plantedWaiter(g)
}

func sharer(r catalog.Request, fence int64) bson.D {
	return with(sharing(r, fence), field("when", bson.DateTime(5)))
}

func (m *machine) enter(t *rapid.T) {
	g := m.kind(t, m.newGrant(t))
	if rapid.IntRange(0, 4).Draw(t, "again") == 0 {
		old := m.oldRequest(t)
		g.Session = old.Session
	}
	if rapid.IntRange(0, 4).Draw(t, "stood before") == 0 {
		g.Since = time.UnixMilli(rapid.Int64Range(1, 3).Draw(t, "since") * 1_000_000_000_000).UTC()
	}
	m.grants[len(m.grants)-1] = g
	lines := []catalog.EnterMode{catalog.Queue, catalog.Queue, catalog.Queue, catalog.Try}
	how := rapid.SampledFrom(lines).Draw(t, "how")
	m.applyLifted(t, transition.Enter{Request: g, How: how})
}

func (m *machine) evict(t *rapid.T) {
	d := dead(m.oldRequest(t))
	if rapid.IntRange(0, 4).Draw(t, "other process") == 0 {
		d.Process = rapid.SampledFrom([]string{"", m.prefix + "p"}).Draw(t, "process")
	}
	d.Renewal = rapid.SampledFrom([]int64{0, 0, 0, 1, 2}).Draw(t, "renewal")
	d.Waits = rapid.IntRange(0, 2).Draw(t, "waits") == 0
	evidence := rapid.SampledFrom([]string{"silent", "$fence", ""}).Draw(t, "evidence")
	m.applyLifted(t, transition.Evict{Holder: d, Evidence: evidence})
}

func (m *machine) names() []string {
	return []string{m.prefix + "x", m.prefix + "$y.z", m.prefix + "missing"}
}

func (m *machine) heldOrFree(t *rapid.T) {
	process, lines := m.process(t), m.names()[:rapid.IntRange(0, 2).Draw(t, "lines")]
	m.both(t, "held or free", func(s Store) string {
		locks, err := s.Catalog.HeldOrFree(m.ctx, process, m.names(), lines)
		var told []string
		for _, l := range locks {
			var line strings.Builder
			line.WriteString(fmt.Sprintf("%s held %v: %+v;", l.Name, l.Held, l.GrantsOf(process)))
			for _, p := range l.Waiters {
				line.WriteString(" " + m.masked(p.TS))
			}
			told = append(told, line.String())
		}
		slices.Sort(told)
		return fmt.Sprint(told, verdict(err))
	})
}

func (m *machine) attend(t *rapid.T) {
	m.both(t, "attend", func(s Store) string {
		looks, err := s.Catalog.Snapshots(m.ctx, m.names())
		text := []string{verdict(err)}
		for _, name := range slices.Sorted(maps.Keys(looks)) {
			text = append(text, name+": "+m.lookText(looks[name]))
		}
		return strings.Join(text, "\n  ")
	})
}

func (m *machine) waiting(t *rapid.T) {
	m.both(t, "waiting", func(s Store) string {
		var text []string
		for row, err := range s.Catalog.List(m.ctx, true) {
			var bad *catalog.MalformedError
			switch {
			case errors.As(err, &bad):
				if strings.HasPrefix(bad.ID, m.prefix) {
					text = append(text, verdict(err))
				}
			case err != nil:
				text = append(text, verdict(err))
			case strings.HasPrefix(row.Lock.Name, m.prefix):
				text = append(text, m.lock(*row.Lock, nil)+"; "+pingText(row.Ping)+"; "+
					pulsesText(row.Pings))
			}
		}
		return strings.Join(text, "\n  ")
	})
}

// pulsesText formats pings. It omits processes without a ping document, because a store may or may
// not return them.
func pulsesText(pulses map[string]catalog.PingState) string {
	var text []string
	for _, process := range slices.Sorted(maps.Keys(pulses)) {
		p := pulses[process]
		if p.Err != nil {
			text = append(text, process+" "+verdict(p.Err))
		}
		if p.Ping != nil {
			text = append(text, pingText(p.Ping))
		}
	}
	return strings.Join(text, ", ")
}
