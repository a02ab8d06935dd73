package mongocatalog_test

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/catalog/transition"
)

// A step is one transition.
type step struct {
	verb     string // enter, leave, evict, grant, renew
	request  catalog.Request
	how      catalog.EnterMode
	dead     catalog.Holder
	evidence string
	renewal  catalog.Renewal
}

func (s step) String() string {
	switch s.verb {
	case "enter":
		r := s.request
		return fmt.Sprintf("enter %s %q %d, line %d", r.TS.Hex(), r.Mode, r.Limit, s.how)
	case "grant":
		return "grant"
	case "renew":
		return fmt.Sprintf("renew %s, %d", s.renewal.TS.Hex(), s.renewal.Number)
	}
	return fmt.Sprintf("%s %s of %q", s.verb, s.dead.TS.Hex(), s.dead.Process)
}

// A form is a short form of a step: its filter and its pipeline.
type form struct {
	filter   bson.D
	pipeline bson.A
}

// short returns the step's short forms.
func (s step) short() []form {
	of := func(filter bson.D, pipeline bson.A) form { return form{filter, pipeline} }
	switch {
	case s.verb == "enter" && (s.how == catalog.Queue || s.request.Mode != catalog.Exclusive):
		return []form{of(mongocatalog.ShortEntry(s.request, s.how))}
	case s.verb == "leave":
		var forms []form
		for _, mode := range []catalog.Mode{catalog.Exclusive, catalog.Shared, catalog.Permit} {
			forms = append(forms, of(mongocatalog.ShortDeparture(s.dead.Session, mode)))
		}
		return forms
	case s.verb == "renew":
		return []form{of(mongocatalog.Renewing(s.renewal))}
	case s.verb == "evict":
		return []form{of(mongocatalog.ShortEviction(s.dead, s.evidence))}
	}
	return nil
}

// rule carries out the step with package transition, and returns the document.
func (s step) rule(doc bson.D, now time.Time) (bson.D, error) {
	l := catalog.Lock{Name: "x"}
	if doc != nil {
		var bad *catalog.MalformedError
		if l, bad = catalog.ParseLock(encoded(doc)); bad != nil {
			return doc, bad
		}
	}
	var c catalog.Change
	var err error
	switch s.verb {
	case "enter":
		c, err = transition.Enter{Request: s.request, How: s.how}.Next(l, now)
	case "grant":
		c, err = transition.GrantNext{Name: "x"}.Next(l, now)
	case "evict":
		c, err = transition.Evict{Holder: s.dead, Evidence: s.evidence}.Next(l, now)
	case "renew":
		c, err = transition.Renew{Renewal: s.renewal}.Next(l, now)
	default:
		c, err = transition.Leave{Session: s.dead.Session}.Next(l, now)
		if err == nil && len(l.Waiters) == 0 && elements(doc, "sharers") == 0 {
			c = catalog.Change{Set: bson.D{e("state", int32(0))}} // the other fields stay
		}
	}
	if err != nil || c.Nothing() {
		return doc, err
	}
	rev, ok := revOf(doc)
	if !ok {
		return doc, catalog.ErrMalformed
	}
	if doc == nil {
		doc = bson.D{e("_id", "x"), e("state", int32(0))}
	}
	for _, set := range append(c.Set, e("rev", rev+1)) {
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

func revOf(doc bson.D) (int64, bool) {
	switch rev := at(doc, []string{"rev"}).(type) {
	case missing:
		return 0, true
	case int32:
		return int64(rev), true
	case int64:
		return rev, true
	}
	return 0, false
}

func encoded(doc bson.D) bson.Raw {
	raw, err := bson.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return raw
}

// decoded converts a document to plain values.
func decoded(doc bson.D) bson.D {
	var plain bson.D
	if err := bson.Unmarshal(encoded(doc), &plain); err != nil {
		panic(err)
	}
	return plain
}

func id(n byte) bson.ObjectID { return bson.ObjectID{0x50, 11: n} }

func enter(n byte, mode catalog.Mode, limit int32, how catalog.EnterMode) step {
	return step{verb: "enter", how: how, request: catalog.Request{
		Session: catalog.Session{Name: "x", TS: id(n)}, Process: fmt.Sprint("process-", n),
		Who: "who", Why: "why", Takeover: time.Minute, Mode: mode, Limit: limit,
	}}
}

func dollars(n byte) step {
	s := enter(n, catalog.Exclusive, 0, catalog.Queue)
	s.request.Process, s.request.Who, s.request.Why = "$process", "$$NOW", "$why.x"
	return s
}

func leave(n byte) step {
	return step{verb: "leave", dead: catalog.Holder{Session: catalog.Session{Name: "x", TS: id(n)}}}
}

func evict(n byte, process string) step {
	s := leave(n)
	s.verb, s.dead.Process, s.evidence = "evict", process, "$silent since noon"
	return s
}

func renew(n byte, number int64, twin bool) step {
	local := time.UnixMilli(1_700_000_000_000).UTC()
	if twin {
		local = local.Add(time.Second)
	}
	return step{verb: "renew", renewal: catalog.Renewal{
		Session: catalog.Session{Name: "x", TS: id(n)}, Number: number, Life: time.Minute, Local: local,
	}}
}

// lease returns the step's lease, written at an earlier time.
func lease(s step) bson.D {
	r := s.renewal
	return bson.D{
		e("ts", r.TS), e("ms", r.Life.Milliseconds()), e("n", r.Number), e("at", bson.DateTime(5)),
		e("local", bson.NewDateTimeFromTime(r.Local)),
	}
}

// entry returns the step's waiter.
func entry(s step) bson.D {
	return transition.Entry(s.request, time.UnixMilli(1_700_000_000_000))
}
