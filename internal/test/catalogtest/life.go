package catalogtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
)

// A life is a sequence of steps on one lock document. After every step, the store must return the
// error and the grants that package transition computes. The stored document must equal the
// computed document. All reads of a changed document must agree with it. On the embedded server,
// they run only at the end of a life.
//
// At the start, the document is a free lock whose fence is the constant planted. The field doc of
// the life adds or replaces fields of the document.
//
// A step is a letter and the number of a session. A slash and a second number may follow. Session 0
// has a zero ts. Session 99 is the holder in the documents of [generations].
//
//	x1          Enter exclusively
//	s1          Enter shared
//	p1/2        Enter for one of 2 permits
//	x1? p1/2?   Enter in the mode Try
//	a1          Enter in the mode TryPlain
//	-1          Leave
//	q1/2        Leave of session 1 that queues session 2
//	e1          Evict
//	e1/7        Evict, only if the last renewal of the session is 7
//	e1w         Evict, only if the session waits
//	E1          Evict with the id of another process
//	c1          Confirm
//	n1/7        SeedFence to at least planted + 7
//	r1/7        Renew with number 7
//	r1/7t       the same renewal by a copy of the holder's process
//	f1/2        PutFirst of session 2 by session 1
//	b1/7        Break, only if the fence is planted + 7
//	y           RequestYield
//	g           GrantNext
//	F           a foreign manager frees the lock
//	O9          a foreign manager takes over the lock as session 9
//
// A step that must fail ends with a colon and the name of its error in lifeErrors. The name "any"
// permits every result.
type life struct {
	name  string
	steps string
	want  string // the holders and the waiters at the end; an empty text is not checked
	doc   []bson.E
}

var lifeErrors = map[string]error{
	"": nil, "no": catalog.ErrNoMatch, "held": catalog.ErrNotFree, "full": catalog.ErrQueueFull,
	"limit": catalog.ErrPermitMismatch,
}

// RunDifferential applies the same random lives to each of several stores, which must be empty.
// Each store must agree with package transition, so the stores agree with each other.
func RunDifferential(t *testing.T, stores ...Store) {
	t.Helper()
	seed := rand.Uint64()
	for _, s := range stores {
		b := &bench{T: t, ctx: t.Context(), Store: s}
		b.randomLives(seed)
	}
}

func (b *bench) randomLives(seed uint64) {
	b.Helper()
	draw := rand.New(rand.NewPCG(seed, 0))
	for range b.rounds(100, 5) {
		b.live("$balancer.x", life{steps: randomSteps(draw, 20)})
		assert.Must(b, b.Delete(b.ctx, "locks", "$balancer.x"))
	}
}

func randomSteps(draw *rand.Rand, n int) string {
	kinds := strings.Fields("x x s s p/1 p/2 p/2 a x? s? p/2? - - - q/3 q/4 e e ew e/1 E c n/7 r/1 r/2 " +
		"r/2t f/3 b/5 y g F O")
	var steps []string
	for i := range n {
		kind := kinds[draw.IntN(len(kinds))]
		number := fmt.Sprint(draw.IntN(7) + 1)
		if kind == "O" {
			number = fmt.Sprint(i + 10) // a session that is not in the document
		}
		if kind != "y" && kind != "g" && kind != "F" {
			kind = kind[:1] + number + kind[1:]
		}
		steps = append(steps, kind+":any")
	}
	return strings.Join(steps, " ")
}

func lifeCases(lives []life) (cases []testCase) {
	for _, l := range lives {
		cases = append(cases, testCase{l.name, func(b *bench) { b.live("$balancer.x", l) }})
	}
	return cases
}

// live applies a life to the named lock. The texts of the requests begin with "$", so that the case
// fails on a server that evaluates them.
func (b *bench) live(name string, l life) {
	b.Helper()
	doc := append(free(name), field("fence", planted))
	b.insert("locks", with(with(doc, l.doc...), field("x", bson.D{field("y", bson.A{int32(1), "z"})})))
	steps := strings.Fields(l.steps)
	defer func() {
		if b.Failed() {
			b.Logf("the steps were %s", strings.Join(steps, " "))
		}
	}()
	raw, embedded := b.document("locks", name), b.embedded()
	for i, text := range steps {
		before, last := raw, i == len(steps)-1
		raw = b.step(name, before, text, true)
		if embedded && last || !embedded && !slices.Equal(before, raw) {
			b.alike(name, raw)
		}
		if b.Failed() {
			steps = steps[:i+1]
			b.FailNow()
		}
	}
	end, bad := catalog.ParseLock(raw)
	if bad != nil {
		b.Fatal(bad)
	}
	if got := short(end); got != l.want && l.want != "" {
		b.Errorf("%s\nwant %s\ngot  %s", l.steps, l.want, got)
	}
	for n := range byte(5) {
		process := processOf(catalog.Session{Name: name, TS: bson.ObjectID{11: 2 * n}})
		sessions := end.SessionsOf(process)
		slices.SortFunc(sessions, catalog.HeldSession.Compare)
		b.wantHeld(process, sessions)
	}
}

// step applies a step to a document. If exact is false, the document may have unusual fields.
// Package transition corrects them, and the single commands of a store do not. Then only the
// holders, the waiters and the malformed field must be as computed. The argument before is the
// document before the step, or nil if there is none. The result is the document after the step.
func (b *bench) step(name string, before bson.Raw, text string, exact bool) bson.Raw {
	b.Helper()
	text, failure, _ := strings.Cut(text, ":")
	switch text[0] {
	case 'F':
		b.rewrite(name, field("state", int32(0)))
		return b.document("locks", name)
	case 'O':
		s := lifeSession(name, text[1:])
		b.rewrite(name, field("state", int32(2)), field("ts", s.TS), field("process", processOf(s)))
		return b.document("locks", name)
	}
	t := transitionOf(name, text)
	if e, ok := t.(transition.Evict); ok && e.TS == historicalTS {
		e.Process, _ = before.Lookup("process").StringValueOK()
		t = e
	}
	change, want := b.decide(before, t)
	l, grants, err := b.Catalog.Apply(b.ctx, t)
	if expected := lifeErrors[failure]; failure != "any" &&
		(!errors.Is(want, expected) || (want == nil) != (expected == nil)) {
		b.Fatalf("package transition returns %v, want %q", want, failure)
	}
	if verdict(err) != verdict(want) {
		b.Fatalf("error of %s\nwant %v\ngot  %v", text, want, err)
	}
	after := b.document("locks", name)
	if change.Nothing() {
		if !slices.Equal(before, after) {
			b.Errorf("document was touched\nbefore %v\nafter  %v", before, after)
		}
		return after
	}
	computed := changed(b.T, before, change)
	if !exact {
		l, bad := catalog.ParseLock(after)
		want, ended := catalog.ParseLock(assert.Value(bson.Marshal(computed))(b))
		if short(l) != short(want) || !reflect.DeepEqual(bad, ended) {
			b.Errorf("document after %s\nwant %v\ngot  %v", text, computed, after)
		}
		return after
	}
	b.wantDocument(after, computed)
	switch t.(type) {
	case transition.Leave, transition.Evict, transition.GrantNext:
		b.wantGrants(grants, err, change.Grants...)
		if q, _ := t.(transition.Leave); q.Enqueue != nil {
			b.wantQueued(q.Enqueue.TS, l, before, after)
		}
	case transition.Enter, transition.Confirm, transition.SeedFence, transition.Break:
		if want, _ := catalog.ParseLock(after); !reflect.DeepEqual(l, want) {
			b.Errorf("lock\nwant %+v\ngot  %+v", want, l)
		}
	}
	return after
}

// wantQueued checks the lock that a Leave returned. If the Leave has queued the session, that must
// be the lock after the change.
func (b *bench) wantQueued(ts bson.ObjectID, got catalog.Lock, before, after bson.Raw) {
	b.Helper()
	was, _ := catalog.ParseLock(before)
	is, _ := catalog.ParseLock(after)
	_, waited := was.WaitedBy(ts)
	_, waits := is.WaitedBy(ts)
	_, shown := got.WaitedBy(ts)
	if shown && !waits || waits && !waited && !reflect.DeepEqual(got, is) {
		b.Errorf("queued\nwant %+v\ngot  %+v", is, got)
	}
}

// decide returns the change that transition.Decide computes at the server's time. Like the stores,
// decide first tries TryPlain for an exclusive request that does not queue.
func (b *bench) decide(raw bson.Raw, t catalog.Transition) (catalog.Change, error) {
	b.Helper()
	now := b.ago(0)
	if e, ok := t.(transition.Enter); ok && e.How == catalog.Try && e.Mode == catalog.Exclusive {
		e.How = catalog.TryPlain
		if _, change, err := transition.Decide(raw, e, now); err == nil {
			return change, nil
		}
	}
	_, change, err := transition.Decide(raw, t, now)
	return change, err
}

func changed(t testing.TB, raw bson.Raw, c catalog.Change) bson.D {
	t.Helper()
	var doc bson.D
	assert.Must(t, bson.Unmarshal(raw, &doc))
	rev, _ := c.NextRev(raw.Lookup("rev"))
	return with(without(with(doc, c.Set...), c.Unset...), field("rev", rev))
}

// alike checks that all reads of a lock agree with its document.
func (b *bench) alike(name string, raw bson.Raw) {
	b.Helper()
	want, bad := catalog.ParseLock(raw)
	if bad != nil {
		b.Fatal(bad)
	}
	read, err := b.Catalog.Read(b.ctx, name)
	locks := map[string]*catalog.Lock{"read": &read, "snapshots": b.snapshot(name).Lock, "list": nil}
	for list, waited := range map[string]bool{"list": false, "list of waiters": true} {
		rows, _ := b.rows(waited)
		for _, row := range rows {
			if row.Lock.Name == name {
				locks[list] = row.Lock
			}
		}
	}
	if _, waited := locks["list of waiters"]; waited != (len(want.Waiters) > 0) || err != nil {
		b.Errorf("with %d waiters: in the list of waiters %v, %v", len(want.Waiters), waited, err)
	}
	for how, l := range locks {
		if l == nil || !reflect.DeepEqual(*l, want) {
			b.Errorf("%s\nwant %+v\ngot  %+v", how, want, l)
		}
	}
	for _, p := range append(want.Holders(), want.Waiters...) {
		sessions := want.SessionsOf(p.Process)
		slices.SortFunc(sessions, catalog.HeldSession.Compare)
		b.wantHeld(p.Process, sessions)
		grants, _ := b.heldOrFree(p.Process, name)
		b.wantGrants(grants, nil, byTS(want.GrantsOf(p.Process))...)
	}
}

// verdict describes the kind of an error. Errors that callers do not distinguish are of one kind.
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
	if kinds := sentinels(err); len(kinds) > 0 {
		return strings.Join(kinds, ", ")
	}
	return "other: " + err.Error()
}

func lifeSession(name, number string) catalog.Session {
	n, err := strconv.ParseUint(number, 10, 8)
	switch {
	case err != nil:
		panic(err)
	case n == 0:
		return catalog.Session{Name: name}
	case n == 99: // the holder in the documents of generations
		return catalog.Session{Name: name, TS: historicalTS}
	}
	return catalog.Session{Name: name, TS: bson.ObjectID{0: 0x41, 11: byte(n)}}
}

// processOf returns the process of a session. Sessions 2n and 2n+1 belong to the same process.
func processOf(s catalog.Session) string { return fmt.Sprint("$", s.Name, "-", s.TS[11]/2) }

// transitionOf returns the transition of a step. The steps F and O have no transition.
func transitionOf(name, text string) catalog.Transition {
	flag := ""
	if last := text[len(text)-1:]; strings.Contains("?tw", last) {
		text, flag = text[:len(text)-1], last
	}
	number, second, _ := strings.Cut(text[1:], "/")
	extra, _ := strconv.ParseInt("0"+second, 10, 32)
	if text == "y" || text == "g" {
		number = "0"
	}
	s := lifeSession(name, number)
	r := catalog.Request{
		Session: s, Process: processOf(s), Who: "$who." + number, Why: "$$NOW",
		Takeover: time.Duration(s.TS[11]) * time.Minute, Limit: int32(extra),
	}
	dead := catalog.Holder{Session: s, Process: r.Process, Renewal: extra, Waits: flag == "w"}
	renew := catalog.Renewal{Session: s, Number: extra, Life: time.Minute, Local: time.UnixMilli(5)}
	if flag == "t" {
		renew.Local = time.UnixMilli(6)
	}
	how := map[string]catalog.EnterMode{"": catalog.Queue, "?": catalog.Try}[flag]
	switch text[0] {
	case 'a':
		return transition.Enter{Request: r, How: catalog.TryPlain}
	case 's':
		r.Mode = catalog.Shared
	case 'p':
		r.Mode = catalog.Permit
	case 'x':
	case '-':
		return transition.Leave{Session: s}
	case 'q':
		next := lifeSession(name, second)
		return transition.Leave{Session: s, Enqueue: &catalog.Request{
			Session: next, Process: processOf(next), Who: "$who", Why: "$$NOW", Takeover: time.Minute,
		}}
	case 'E':
		dead.Process = "another"
		return transition.Evict{Holder: dead}
	case 'e':
		return transition.Evict{Holder: dead, Evidence: "$silent"}
	case 'c':
		return transition.Confirm{Request: r}
	case 'n':
		return transition.SeedFence{Session: s, AtLeast: planted + extra}
	case 'r':
		return transition.Renew{Renewal: renew}
	case 'f':
		return transition.PutFirst{Session: s, To: lifeSession(name, second).TS}
	case 'b':
		return transition.Break{
			Session: s, Fence: planted + extra, Why: "$why", New: lifeSession(name, "100").TS,
		}
	case 'y':
		return transition.RequestYield{Name: name, By: "$by", Why: "$why"}
	case 'g':
		return transition.GrantNext{Name: name}
	default:
		panic(text)
	}
	return transition.Enter{Request: r, How: how}
}

// short describes the holders and waiters of a lock, for example "x1 | s2 s3".
func short(l catalog.Lock) string {
	var parts []string
	write := func(participants []catalog.Participant) {
		for _, p := range participants {
			n := int(p.TS[11])
			if p.TS == historicalTS {
				n = 99
			}
			letter := map[catalog.Mode]string{"": "x", catalog.Shared: "s", catalog.Permit: "p"}[p.Mode]
			parts = append(parts, letter+strconv.Itoa(n))
		}
	}
	write(l.Holders())
	parts = append(parts, "|")
	write(l.Waiters)
	return strings.Join(parts, " ")
}
