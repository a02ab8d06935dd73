package mongocatalog_test

import (
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/catalogtest"
)

// The functions in this file draw random transitions and random lock documents. They draw documents
// of this package, documents of other programs, and damaged documents.

// twoLines is a process id that contains the line of a grant.
var twoLines = "one\n" + catalog.GrantLine(id(1), 7, processOf(1))

var modes = []catalog.Mode{catalog.Exclusive, catalog.Shared, catalog.Shared, catalog.Permit}

func drawStep(t *rapid.T) step {
	n := byte(rapid.IntRange(1, 8).Draw(t, "session"))
	switch rapid.IntRange(0, 13).Draw(t, "verb") {
	case 0, 1, 2, 3, 4:
		mode := rapid.SampledFrom(modes).Draw(t, "mode")
		limit := int32(0)
		if mode == catalog.Permit {
			limit = rapid.SampledFrom([]int32{1, 2, 2, 2, 3}).Draw(t, "limit")
		}
		how := rapid.SampledFrom([]catalog.EnterMode{catalog.Queue, catalog.Queue, catalog.Try})
		s := enter(n, mode, limit, how.Draw(t, "how"))
		s.Process = rapid.SampledFrom([]string{s.Process, s.Process, twoLines}).Draw(t, "process")
		return s
	case 5, 6:
		return leave(n)
	case 7:
		return leaveFor(n, byte(rapid.IntRange(1, 8).Draw(t, "next")))
	case 8, 9, 10:
		process := rapid.SampledFrom([]string{processOf(n), processOf(1), ""})
		s := evict(n, process.Draw(t, "process"))
		s.Renewal = rapid.SampledFrom([]int64{0, 0, 0, 0, 1}).Draw(t, "renewal")
		return s
	case 11, 12:
		return drawRenewal(t, n)
	default:
		return grant
	}
}

func drawRenewal(t *rapid.T, n byte) transition.Renew {
	number, twin := rapid.Int64Range(1, 3).Draw(t, "number"), rapid.IntRange(0, 3).Draw(t, "twin")
	return renew(n, number, twin == 0)
}

// document draws a lock document, or nil. If plain is true, this package could have written the
// document.
func document(t *rapid.T) (doc bson.D, plain bool) {
	kind := rapid.IntRange(0, 9).Draw(t, "kind of document")
	switch kind {
	case 0:
		return nil, true
	case 9:
		return decoded(rapid.SampledFrom(catalogtest.OddDocuments()).Draw(t, "odd")), false
	}
	plain = kind < 6
	doc = bson.D{e("_id", "x")}
	add := func(key string, values ...any) {
		if v := rapid.SampledFrom(values).Draw(t, key); v != any(missing{}) {
			doc = append(doc, e(key, v))
		}
	}
	none := any(missing{})
	add("state", int32(0), int32(1), int32(1), int32(2), int64(1), 1.0)
	n := byte(rapid.IntRange(1, 8).Draw(t, "holder"))
	doc = append(doc, e("ts", id(n)))
	if process := processOf(n); plain { // this package always writes the field
		doc = append(doc, e("process", process))
	} else {
		add("process", process, process, none, nil, "")
	}
	add("fence", none, int32(7), int64(7), int64(transition.Seeded-1), int64(transition.Seeded),
		int64(1)<<45, int64(transition.Highest), int64(transition.Highest)+1)
	add("rev", none, none, int32(3), int64(4), int64(transition.Highest))
	add("who", none, "other")
	add("grants", none, catalog.GrantLine(id(n), 7, processOf(n)))
	add("evidence", none, "old")
	add("takeoverMS", none, int64(1000))
	add("mode", none, none, "shared", "permit")
	add("limit", none, int32(1), int32(2), int32(3))
	if rapid.Bool().Draw(t, "sharers") {
		doc = append(doc, e("sharers", participants(t, "sharers", plain, n)))
	}
	if rapid.Bool().Draw(t, "waiters") {
		doc = append(doc, e("waiters", participants(t, "waiters", plain, 0)))
	}
	if rapid.Bool().Draw(t, "leases") {
		leases := bson.A{}
		for k := range rapid.IntRange(0, 3).Draw(t, "number of leases") {
			one := byte(rapid.IntRange(1, 8).Draw(t, "lease of"))
			if k == 0 {
				one = n
			}
			leases = append(leases, lease(drawRenewal(t, one)))
		}
		doc = append(doc, e("leases", leases))
	}
	doc = append(doc, e("x", bson.D{e("y", "z")}))
	return decoded(doc), plain
}

// participants draws an array of holders or waiters. If first is not zero, it is usually the
// session number of the first element.
func participants(t *rapid.T, field string, plain bool, first byte) bson.A {
	count := rapid.IntRange(0, 4).Draw(t, "number of "+field)
	if field == "waiters" && rapid.IntRange(0, 19).Draw(t, "full") == 0 {
		count = catalog.MaxWaiters - rapid.IntRange(-1, 12).Draw(t, "less")
	}
	crowd := byte(rapid.IntRange(1, 8).Draw(t, "crowd"))
	list := bson.A{}
	for i := range count {
		n := byte(rapid.IntRange(1, 8).Draw(t, "session"))
		if i >= 4 {
			n = byte(100 + i)
		}
		if i == 0 && first != 0 && rapid.IntRange(0, 4).Draw(t, "stale") > 0 {
			n = first
		}
		mode := rapid.SampledFrom(modes).Draw(t, "mode")
		limit := int32(0)
		if mode == catalog.Permit {
			limit = rapid.SampledFrom([]int32{1, 2, 2, 3}).Draw(t, "limit")
		}
		one := enter(n, mode, limit, catalog.Queue)
		if i > catalog.MaxWaiters/2 {
			one.Process = processOf(crowd)
		}
		element := entry(one)
		if field == "sharers" {
			element = remove(remove(remove(element, []string{"mode"}), []string{"limit"}), []string{"since"})
			element = append(element, e("when", bson.DateTime(5)), e("fence", int64(50+i)))
		}
		if !plain {
			element = foreign(t, element)
		}
		list = append(list, element)
	}
	return list
}

// foreign changes a participant in a way in which another program can change it. The participant
// stays valid.
func foreign(t *rapid.T, element bson.D) bson.D {
	switch rapid.IntRange(0, 8).Draw(t, "foreign") {
	case 0:
		return remove(element, []string{"who"})
	case 1:
		return put(element, []string{"why"}, int32(5))
	case 2:
		return put(element, []string{"mode"}, nil)
	case 3, 4:
		return put(element, []string{"limit"}, rapid.SampledFrom([]any{2.0, int64(2)}).Draw(t, "odd limit"))
	case 5:
		return put(element, []string{"takeoverMS"}, "long")
	case 6:
		return remove(element, []string{"since"})
	case 7:
		return put(element, []string{"process"}, twoLines)
	}
	return element
}
