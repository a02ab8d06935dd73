package mongocatalog_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/effort"
)

// A step is a transition of the lock "x".
type step = catalog.Transition

// A runner applies a filter and a pipeline to a document, which may be nil. It returns the changed
// document, whether the filter matched, and the time of the server's clock.
type runner func(doc bson.D, filter bson.D, pipeline bson.A, upsert bool) (
	after bson.D, ok bool, now time.Time, err error)

// evaluated is a runner that uses an evaluator, not a server.
func evaluated(doc, filter bson.D, pipeline bson.A, upsert bool) (bson.D, bool, time.Time, error) {
	now := time.UnixMilli(1_800_000_000_000).UTC()
	plain := decoded(bson.D{e("filter", filter), e("pipeline", pipeline)})
	if doc == nil {
		if doc = (bson.D{e("_id", "x")}); !upsert {
			return nil, false, now, nil
		}
	} else if ok, err := matches(doc, plain[0].Value.(bson.D), now); !ok || err != nil {
		return doc, false, now, err
	}
	after, err := runPipeline(doc, plain[1].Value.(bson.A), now)
	return after, true, now, err
}

// check executes a transition by each of its forms, which are single commands. A form that changes
// the document must have the same result as package transition. If plain is true, the documents
// must be equal field by field. Otherwise only the parsed documents must be equal. check returns
// the changed document and the number of forms that changed it.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, run runner, s catalog.Transition, doc bson.D, plain bool) (after bson.D, done int) {
	t.Helper()
	after, _ = rule(s, doc, time.UnixMilli(1_800_000_000_000).UTC())
	_, enters := s.(transition.Enter)
	for _, f := range short(s) {
		got, ok, now, err := run(doc, f.filter, f.pipeline, enters)
		if err != nil {
			t.Fatalf("%T %+v\non  %s\nfails: %v", s, s, text(doc), err)
		}
		if !ok || text(got) == text(doc) {
			continue
		}
		done++
		want, refusal := rule(s, doc, now)
		want = asMirrored(doc, want, got)
		if refusal != nil || !asRuled(want, got, plain) {
			t.Fatalf("%T %+v (%v)\non   %s\nwant %s\ngot  %s", s, s, refusal, text(doc), text(want),
				text(got))
		}
		after = got
	}
	if done > 1 {
		t.Fatalf("%T %+v\non  %s\n%d forms match", s, s, text(doc), done)
	}
	return after, done
}

// In a lock with several holders, the fields who, why, when and takeoverMS are copies of the first
// holder's fields. If another program changed a copy, package transition restores it, but a single
// command does not. asMirrored removes this difference from the expected document.
func asMirrored(before, want, got bson.D) bson.D {
	if field(before, "sharers") == nil {
		return want
	}
	for _, name := range []string{"who", "why", "when", "takeoverMS"} {
		was, is := field(before, name), field(got, name)
		if !reflect.DeepEqual(was, is) {
			continue
		}
		want = slices.DeleteFunc(slices.Clone(want), func(f bson.E) bool { return f.Key == name })
		if is != nil {
			want = append(want, e(name, is))
		}
	}
	return want
}

func field(doc bson.D, name string) any {
	if doc == nil {
		return nil
	}
	for _, f := range decoded(doc) {
		if f.Key == name {
			return f.Value
		}
	}
	return nil
}

// asRuled reports whether two documents are equal field by field. If bytes is false, it also
// accepts documents with the same parsed lock.
func asRuled(want, got bson.D, bytes bool) bool {
	if text(want) == text(got) || bytes {
		return text(want) == text(got)
	}
	meaning, ended := catalog.ParseLock(encoded(want)) // malformed if the fence has reached its limit
	found, bad := catalog.ParseLock(encoded(got))
	return reflect.DeepEqual(ended, bad) && revOf(want) == revOf(got) &&
		reflect.DeepEqual(meaning, found)
}

// text returns a document as JSON with sorted fields.
func text(doc bson.D) string {
	if doc == nil {
		return "no document"
	}
	out, err := bson.MarshalExtJSON(sorted(decoded(doc)), true, false)
	if err != nil {
		panic(err)
	}
	return string(out)
}

func sorted(v any) any {
	switch v := v.(type) {
	case bson.D:
		out := bson.D{}
		for _, one := range v {
			out = append(out, bson.E{Key: one.Key, Value: sorted(one.Value)})
		}
		slices.SortFunc(out, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
		return out
	case bson.A:
		out := bson.A{}
		for _, one := range v {
			out = append(out, sorted(one))
		}
		return out
	}
	return v
}

// A release queues a session with its single command, unless MaxEnqueued others are queued.
func TestPipeline_LongQueue_ReleaseQueuesNoMore(t *testing.T) {
	t.Parallel()
	for n := transition.MaxEnqueued - 1; n < transition.MaxEnqueued+2; n++ {
		waiters := bson.A{}
		for i := range n + 1 {
			waiters = append(waiters, entry(enter(byte(i+100), catalog.Exclusive, 0, catalog.Queue)))
		}
		doc := bson.D{e("_id", "x"), e("state", int32(1)), e("process", processOf(1)), e("ts", id(1)),
			e("fence", int64(7)), e("rev", int64(3)), e("waiters", waiters)}
		doc, short := check(t, evaluated, leaveFor(1, 2), doc, true)
		if got := hasWaiter(doc, id(2)); short != 1 || got != (n < transition.MaxEnqueued) {
			t.Errorf("%d others: %d commands, queued %v", n, short, got)
		}
	}
}

// If a queue has one free place, the next request enters the queue with a single command. A reader
// behind an exclusive holder needs more commands. A full queue refuses requests in every mode.
func TestPipeline_FullQueue_RefusesTheNextInEveryMode(t *testing.T) {
	t.Parallel()
	for mode, limit := range map[catalog.Mode]int32{
		catalog.Exclusive: 0, catalog.Shared: 0, catalog.Permit: 1,
	} {
		waiters := bson.A{}
		for i := range catalog.MaxWaiters - 1 {
			waiters = append(waiters, entry(enter(byte(i+100), mode, limit, catalog.Queue)))
		}
		doc := bson.D{e("_id", "x"), e("state", int32(1)), e("process", processOf(1)), e("ts", id(1)),
			e("fence", int64(7)), e("rev", int64(3)), e("waiters", waiters)}
		if mode == catalog.Permit {
			holder := bson.D{e("ts", id(1)), e("process", processOf(1)), e("fence", int64(7))}
			doc = append(doc, e("mode", "permit"), e("limit", limit), e("sharers", bson.A{holder}))
		}
		for i, commands := range []int{1, 0, 0} {
			if mode == catalog.Shared { // behind an exclusive holder a compare-and-set is used
				commands = 0
			}
			var short int
			doc, short = check(t, evaluated, enter(byte(10+i), mode, limit, catalog.Queue), doc, true)
			if n := elements(doc, "waiters"); n != catalog.MaxWaiters || short != commands {
				t.Fatalf("%q, request %d: %d waiters, %d entered by a single command, want %d", mode, i, n, short,
					commands)
			}
		}
	}
}

// A writer behind readers enters the queue with a single command. A compare-and-set would fail
// whenever a reader enters or leaves during its round trip.
func TestPipeline_WriterBehindReaders_EntersWithASingleCommand(t *testing.T) {
	t.Parallel()
	doc := bson.D{e("_id", "x"), e("state", int32(0)), e("process", processOf(9)), e("ts", id(9)),
		e("fence", int64(7)), e("rev", int64(3))}
	for i, s := range []step{
		enter(1, catalog.Shared, 0, catalog.Queue), enter(2, catalog.Shared, 0, catalog.Queue),
		enter(3, catalog.Exclusive, 0, catalog.Queue), enter(4, catalog.Exclusive, 0, catalog.Queue),
	} {
		var short int
		if doc, short = check(t, evaluated, s, doc, true); short != 1 {
			t.Errorf("request %d needs more than one command", i+1)
		}
	}
	assert.Equal(t, elements(doc, "waiters"), 2, "%d waiters, want %d")
}

// A lock has at most MaxHolders holders. A further request must wait.
func TestPipeline_AsManyHoldersAsMayBe_TheNextWaits(t *testing.T) {
	t.Parallel()
	for mode, limit := range map[catalog.Mode]int32{catalog.Shared: 0, catalog.Permit: 2_000_000} {
		sharers := bson.A{}
		for i := range catalog.MaxHolders - 1 {
			ts := bson.ObjectID{0x51, 10: byte(i >> 8), 11: byte(i)}
			sharers = append(sharers, bson.D{e("ts", ts), e("process", "p"), e("fence", int64(i))})
		}
		doc := bson.D{e("_id", "x"), e("state", int32(1)), e("process", "p"),
			e("ts", bson.ObjectID{0x51}), e("mode", string(mode)), e("limit", limit), e("sharers", sharers)}
		if mode == catalog.Shared {
			doc = remove(doc, []string{"limit"})
		}
		for _, s := range []step{
			enter(1, mode, limit, catalog.Queue), enter(2, mode, limit, catalog.Try),
			enter(3, mode, limit, catalog.Queue), leave(1),
		} {
			doc, _ = check(t, evaluated, s, doc, false)
			if n := elements(doc, "sharers"); n > catalog.MaxHolders {
				t.Fatalf("%T: %d holders", s, n)
			}
		}
		if elements(doc, "sharers") != catalog.MaxHolders || elements(doc, "waiters") != 0 {
			t.Errorf("%d holders and %d waiters", elements(doc, "sharers"), elements(doc, "waiters"))
		}
	}
}

// sharedInList reports whether the field mode is a list with the mode of a shared lock or a
// semaphore.
func sharedInList(doc bson.D) bool {
	list, _ := encoded(doc).Lookup("mode").ArrayOK()
	values, _ := list.Values()
	return slices.ContainsFunc(values, func(v bson.RawValue) bool {
		mode, _ := v.StringValueOK()
		return mode == string(catalog.Shared) || mode == string(catalog.Permit)
	})
}

// The command that acquires a free lock matches exactly the valid documents of free locks without
// waiters and sharers. There is one exception: ParseLock ignores a mode that is a list, but $nin
// compares the elements of the list. The command refuses such a document if an element is the mode
// of a shared lock or a semaphore, and the compare-and-set that follows acquires the lock.
func TestAcquisition_AnyDocument_TakesWhatIsUnderstoodAndFree(t *testing.T) {
	t.Parallel()
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		doc, _ := document(t)
		if doc == nil {
			return
		}
		if rapid.Bool().Draw(t, "free") {
			doc = put(remove(doc, []string{"sharers"}), []string{"state"}, int32(0))
			doc = remove(doc, []string{"waiters"})
		}
		l, bad := catalog.ParseLock(encoded(doc))
		want := bad == nil && !l.Held && len(l.Waiters) == 0 && !l.OldSharers
		try := enter(1, catalog.Exclusive, 0, catalog.Try)
		g := try.Request
		if want && sharedInList(doc) {
			want = false
			if _, err := try.Next(l, time.UnixMilli(0)); err != nil {
				t.Fatalf("on %s\nthe compare-and-set refuses it, too: %v", text(doc), err)
			}
		}
		filter := decoded(mongocatalog.Acquisition(g))
		got, err := matches(doc, filter, time.UnixMilli(0))
		if err != nil || got != want {
			t.Fatalf("on %s\nacquired %v, want %v: %+v, %v; %v", text(doc), got, want, l, bad, err)
		}
		if got {
			taken++
		}
	})
	if taken == 0 && !testing.Short() && !effort.Race { // a few documents may contain no free lock
		t.Error("no document was acquired: the test proves nothing")
	}
}

// On a document with unusual fields, each form of a transition has the same result as package
// transition, or does not match.
func TestPipeline_OddDocuments_DoAsPackageTransition(t *testing.T) {
	t.Parallel()
	for _, odd := range catalogtest.OddDocuments() {
		doc := decoded(odd)
		process, _ := field(doc, "process").(string)
		s := leave(1)
		if ts, _ := field(doc, "ts").(bson.ObjectID); !ts.IsZero() {
			s.TS = ts
		}
		queues := leaveFor(1, 2)
		queues.TS = s.TS
		lease := renew(1, 1, false)
		lease.Session = s.Session
		for _, next := range []step{
			enter(2, catalog.Exclusive, 0, catalog.Queue), enter(2, catalog.Shared, 0, catalog.Queue),
			enter(2, catalog.Permit, 3, catalog.Queue), s, queues, lease,
			transition.Evict{Holder: catalog.Holder{Session: s.Session, Process: process}},
		} {
			check(t, evaluated, next, doc, false)
		}
	}
}

func TestPipeline_AnyDocument_DoesAsPackageTransition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { walk(t, evaluated) })
}

func walk(t *rapid.T, run runner) {
	doc, plain := document(t)
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		doc, _ = check(t, run, drawStep(t), doc, plain)
	}
}

// On documents that this package writes, each form of a transition has the same result as package
// transition. The test fails if one of the forms was never used.
func TestPipeline_AnyLife_DoesAsPackageTransition(t *testing.T) {
	t.Parallel()
	done := map[string]int{}
	rapid.Check(t, func(t *rapid.T) { live(t, evaluated, 60, done) })
	if testing.Short() || effort.Race {
		return // there are too few steps to try each form
	}
	for _, kind := range []string{
		"enter ", "enter shared", "enter permit", "release", "release and queue", "evict", "renew",
	} {
		if done[kind] == 0 {
			t.Errorf("the form of %q was never used: the test proves nothing; %v", kind, done)
		}
	}
}

// Random transitions change a lock that is free at first. The map done counts, for each kind of
// command, how often it changed the document.
func live(t *rapid.T, run runner, steps int, done map[string]int) {
	doc := bson.D{e("_id", "x"), e("state", int32(0))}
	for range steps {
		s, short := drawStep(t), 0
		if l, _ := catalog.ParseLock(encoded(doc)); l.Held && rapid.Bool().Draw(t, "the holder") {
			switch one := s.(type) {
			case transition.Leave:
				one.TS = l.TS
				s = one
			case transition.Evict:
				one.TS, one.Process = l.TS, l.Process
				s = one
			}
		}
		if doc, short = check(t, run, s, doc, true); short > 0 {
			kind := string(s.Op())
			switch one := s.(type) {
			case transition.Enter:
				kind += " " + string(one.Mode)
			case transition.Leave:
				if next := one.Enqueue; next != nil && hasWaiter(doc, next.TS) {
					kind = "release and queue"
				}
			}
			done[kind]++
		}
	}
}

func hasWaiter(doc bson.D, ts bson.ObjectID) bool {
	l, _ := catalog.ParseLock(encoded(doc))
	_, waits := l.WaitedBy(ts)
	return waits
}

// A read of many locks skips exactly the documents that package catalog cannot parse.
func TestUnderstood_AnyDocument_IsWhatPackageCatalogUnderstands(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		doc, _ := document(t)
		if doc == nil {
			return
		}
		_, bad := catalog.ParseLock(encoded(doc))
		got, err := matches(doc, decoded(mongocatalog.Understood()), time.UnixMilli(0))
		if err != nil || got != (bad == nil) {
			t.Fatalf("on %s\naccepted %v, %v, want %v", text(doc), got, err, bad)
		}
	})
}

// The single command that evicts a holder with an expired lease matches only if the lease has not
// been renewed meanwhile.
func TestPipeline_EvictionByLease_NamesTheRenewal(t *testing.T) {
	t.Parallel()
	var doc bson.D
	holder := enter(1, catalog.Exclusive, 0, catalog.Queue)
	waiter := enter(2, catalog.Exclusive, 0, catalog.Queue)
	for _, s := range []step{holder, renew(1, 1, false), renew(1, 2, false), waiter} {
		short := 0
		if doc, short = check(t, evaluated, s, doc, true); short != 1 {
			t.Fatalf("%T has no short form on %s", s, text(doc))
		}
	}
	for renewal, want := range map[int64]int{1: 0, 2: 1, 3: 0} {
		s := evict(1, processOf(1))
		s.Renewal = renewal
		if _, short := check(t, evaluated, s, doc, true); short != want {
			t.Errorf("of renewal %d: %d short forms, want %d", renewal, short, want)
		}
	}
}
