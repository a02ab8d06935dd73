package mongocatalog_test

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/catalog/transition"
)

// A form is the filter and the pipeline of a command that executes a whole transition.
type form struct {
	filter   bson.D
	pipeline bson.A
}

// short returns the forms of a transition. It returns nil if the transition needs more than one
// command.
func short(t catalog.Transition) []form {
	of := func(filter bson.D, pipeline bson.A) form { return form{filter, pipeline} }
	switch t := t.(type) {
	case transition.Enter:
		if t.How == catalog.Queue || t.Mode != catalog.Exclusive {
			return []form{of(mongocatalog.ShortEntry(t.Request, t.How))}
		}
	case transition.Leave:
		var forms []form
		for _, mode := range []catalog.Mode{catalog.Exclusive, catalog.Shared, catalog.Permit} {
			if mode == catalog.Exclusive || t.Enqueue == nil { // only this form queues a request
				forms = append(forms, of(mongocatalog.ShortDeparture(t, mode)))
			}
		}
		return forms
	case transition.Renew:
		return []form{of(mongocatalog.Renewing(t.Renewal))}
	case transition.Evict:
		return []form{of(mongocatalog.ShortEviction(t.Holder, t.Evidence))}
	}
	return nil
}

// rule returns the document that package transition computes for a transition.
func rule(t catalog.Transition, doc bson.D, now time.Time) (bson.D, error) {
	var raw bson.Raw
	if doc != nil {
		raw = encoded(doc)
		if _, bad := catalog.ParseLock(raw); bad != nil {
			return doc, bad
		}
	}
	l, c, err := transition.Decide(raw, t, now)
	if err != nil || c.Nothing() {
		return doc, err
	}
	_, leaves := t.(transition.Leave)
	if leaves && len(l.Waiters) == 0 && elements(doc, "sharers") == 0 {
		c = catalog.Change{Set: bson.D{e("state", int32(0))}} // the other fields stay
	}
	if doc == nil {
		doc = bson.D{e("_id", "x"), e("state", int32(0))}
	}
	for _, set := range append(c.Set, e("rev", revOf(doc)+1)) {
		doc = put(doc, []string{set.Key}, set.Value)
	}
	for _, field := range c.Unset {
		doc = remove(doc, []string{field})
	}
	return doc, nil
}

func elements(doc bson.D, field string) int {
	list, _ := at(doc, []string{field}).(bson.A)
	return len(list)
}

func revOf(doc bson.D) int64 {
	rev, _ := encoded(doc).Lookup("rev").AsInt64OK()
	return rev
}

func encoded(doc bson.D) bson.Raw {
	raw, err := bson.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return raw
}

// decoded encodes the document to BSON and decodes it again.
func decoded(doc bson.D) bson.D {
	var plain bson.D
	if err := bson.Unmarshal(encoded(doc), &plain); err != nil {
		panic(err)
	}
	return plain
}

func id(n byte) bson.ObjectID { return bson.ObjectID{0x50, 11: n} }

func processOf(n byte) string { return fmt.Sprint("$process-", n) }

// enter returns a request whose texts begin with "$". A command that does not quote them stores
// values of fields instead.
func enter(n byte, mode catalog.Mode, limit int32, how catalog.EnterMode) transition.Enter {
	return transition.Enter{How: how, Request: catalog.Request{
		Session: catalog.Session{Name: "x", TS: id(n)}, Process: processOf(n),
		Who: "$$NOW", Why: "$why.x", Takeover: time.Minute, Mode: mode, Limit: limit,
	}}
}

func leave(n byte) transition.Leave {
	return transition.Leave{Session: catalog.Session{Name: "x", TS: id(n)}}
}

// leaveFor returns a Leave of the session n that queues the session next.
func leaveFor(n, next byte) transition.Leave {
	t, then := leave(n), enter(next, catalog.Exclusive, 0, catalog.Queue)
	t.Enqueue = &then.Request
	return t
}

func evict(n byte, process string) transition.Evict {
	dead := catalog.Holder{Session: leave(n).Session, Process: process}
	return transition.Evict{Holder: dead, Evidence: "$silent since noon"}
}

func renew(n byte, number int64, twin bool) transition.Renew {
	local := time.UnixMilli(1_700_000_000_000).UTC()
	if twin {
		local = local.Add(time.Second)
	}
	return transition.Renew{Renewal: catalog.Renewal{
		Session: leave(n).Session, Number: number, Life: time.Minute, Local: local,
	}}
}

var grant = transition.GrantNext{Name: "x"}

// lease returns the lease that an earlier execution of the renewal r wrote.
func lease(r transition.Renew) bson.D {
	return bson.D{
		e("ts", r.TS), e("ms", r.Life.Milliseconds()), e("n", r.Number), e("at", bson.DateTime(5)),
		e("local", bson.NewDateTimeFromTime(r.Local)),
	}
}

func entry(t transition.Enter) bson.D {
	return transition.Entry(t.Request, time.UnixMilli(1_700_000_000_000))
}
