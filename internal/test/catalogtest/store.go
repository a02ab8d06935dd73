package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/test/assert"
)

// A Store is an empty store under test, with direct access to its documents.
type Store struct {
	Catalog catalog.Catalog
	// Insert inserts a document. It returns an error if the _id exists.
	Insert func(ctx context.Context, collection string, doc bson.D) error
	// Delete deletes a document. A missing document is not an error.
	Delete func(ctx context.Context, collection, id string) error
	// Document returns a document, or nil if the document does not exist.
	Document func(ctx context.Context, collection, id string) (bson.Raw, error)
}

// OnServer returns a store whose documents are in the given database of a server.
func OnServer(c catalog.Catalog, db *mongo.Database) Store {
	byID := func(id string) bson.D { return bson.D{field("_id", id)} }
	return Store{
		Catalog: c,
		Insert: func(ctx context.Context, collection string, doc bson.D) error {
			return assert.Err(db.Collection(collection).InsertOne(ctx, doc))
		},
		Delete: func(ctx context.Context, collection, id string) error {
			return assert.Err(db.Collection(collection).DeleteOne(ctx, byID(id)))
		},
		Document: func(ctx context.Context, collection, id string) (bson.Raw, error) {
			raw, err := db.Collection(collection).FindOne(ctx, byID(id)).Raw()
			if errors.Is(err, mongo.ErrNoDocuments) {
				return nil, nil
			}
			return raw, err
		},
	}
}

// InMemory returns a new store in memory.
func InMemory() Store {
	c := memcatalog.New(memcatalog.Options{})
	return Store{
		Catalog: c,
		Insert: func(_ context.Context, collection string, doc bson.D) error {
			if id, ok := doc[0].Value.(string); ok && c.Document(collection, id) != nil {
				return fmt.Errorf("there is a %q in %s", id, collection)
			}
			return c.Put(collection, doc)
		},
		Delete: func(_ context.Context, collection, id string) error {
			c.Remove(collection, id)
			return nil
		},
		Document: func(_ context.Context, collection, id string) (bson.Raw, error) {
			return c.Document(collection, id), nil
		},
	}
}

// Run runs each case on a new store. The cases run in parallel.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	groups := []struct {
		name  string
		cases []testCase
	}{
		{"Acquire", acquireCases},
		{"Held", holderCases},
		{"Lease", leaseCases},
		{"Foreign", foreignCases},
		{"Ping", pingCases},
		{"Condemn", condemnCases},
		{"Sight", sightCases},
		{"PassOver", passoverCases},
		{"PruneLocks", pruneLocksCases},
		{"Chores", choreCases},
		{"Operator", operatorCases},
		{"Race", raceCases},
		{"Transact", transactCases},
		{"Life", lifeCases(append(plainLives, queueLives...))},
		{"Random", []testCase{{"Lives", func(b *bench) { b.randomLives(rand.Uint64()) }}}},
		{"Queue", append(queueCases, append(queueReadCases, queueRaceCases...)...)},
		{"Odd", oddCases},
		{"Damaged", damagedCases},
		{"GrantStream", grantStreamCases},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&bench{T: t, ctx: t.Context(), Store: open(t)})
				})
			}
		})
	}
}

type testCase struct {
	name string
	run  func(b *bench)
}

type bench struct {
	*testing.T
	Store
	ctx   context.Context
	beats map[string]int64 // number of the last ping, by process
}

const (
	alice    = "host-a:27017:1700000000:1b4e28ba-2fa1-11d2-883f-0016d3cca427"
	bob      = "host-b:27017:1700000001:6fa459ea-ee8a-3ca4-894e-db77e160355e"
	takeover = 15 * time.Minute
)

func request(name, process string) catalog.Request {
	return catalog.Request{
		Session:  catalog.Session{Name: name, TS: bson.NewObjectID()},
		Process:  process,
		Who:      process + ":main:42",
		Why:      "doing balance round",
		Takeover: takeover,
	}
}

func beat(process string, n int64) catalog.Heartbeat {
	return catalog.Heartbeat{
		Process:  process,
		Seq:      n,
		Local:    time.UnixMilli(1_700_000_123_456).UTC(),
		Takeover: takeover,
		Interval: 30 * time.Second,
	}
}

func (b *bench) next(process string) catalog.Heartbeat {
	if b.beats == nil {
		b.beats = map[string]int64{}
	}
	b.beats[process]++
	return beat(process, b.beats[process])
}

func (b *bench) insert(collection string, doc bson.D) {
	b.Helper()
	if err := b.Insert(b.ctx, collection, doc); err != nil {
		b.Fatalf("insert %v: %v", doc, err)
	}
}

func (b *bench) document(collection, id string) bson.Raw {
	b.Helper()
	raw := assert.Value(b.Document(b.ctx, collection, id))(b)
	return raw
}

func (b *bench) acquire(r catalog.Request) catalog.Lock {
	b.Helper()
	l, err := On(b.Catalog).Acquire(b.ctx, r)
	assert.Must(b, err, "acquire")
	return l
}

func (b *bench) ping(process string) catalog.Ping {
	b.Helper()
	p, err := b.Catalog.Ping(b.ctx, b.next(process))
	assert.Must(b, err, "ping")
	return p.Ping
}

// embedded reports whether the store is on the embedded server. There it computes each transition
// in this program, so many steps would only repeat the test of the store in memory.
func (b *bench) embedded() bool {
	b.Helper()
	return assert.Value(b.Catalog.Hello(b.ctx))(b).Kind == catalog.FerretDB
}

func (b *bench) release(s catalog.Session) error {
	_, err := On(b.Catalog).Leave(b.ctx, s)
	return err
}

func (b *bench) snapshot(name string) catalog.Snapshot {
	b.Helper()
	snapshot, err := catalog.LookAt(b.ctx, b.Catalog, name)
	assert.Must(b, err, "snapshot")
	return snapshot
}

// wantErr checks that err matches want, and no other sentinel error.
func (b *bench) wantErr(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("error\nwant %v\ngot  %v", want, err)
	}
	if kinds := sentinels(err); len(kinds) != 1 {
		b.Errorf("error %v is of several kinds: %q", err, kinds)
	}
}

func (b *bench) wantMalformed(err error, collection, id, field string) {
	b.Helper()
	var bad *catalog.MalformedError
	if !errors.As(err, &bad) {
		b.Fatalf("want a *MalformedError, got %v", err)
	}
	b.wantErr(err, catalog.ErrMalformed)
	got := []string{bad.Collection, bad.ID, bad.Field}
	assert.Slices(b, []string{collection, id, field}, got, "malformed document\nwant %q\ngot  %q")
}

// wantTwin checks that err is a *TwinError. The argument sent is the refused ping. The argument
// found is the seq in the stored ping, or 0 if that ping has no seq.
func (b *bench) wantTwin(err error, sent catalog.Heartbeat, found int64) {
	b.Helper()
	b.wantErr(err, catalog.ErrTwin)
	var twin *catalog.TwinError
	if !errors.As(err, &twin) || twin.Process != sent.Process || twin.Sent != sent.Seq ||
		twin.Found.Seq != found || twin.Found.HasSeq != (found != 0) {
		b.Errorf("facts: %+v", twin)
	}
}

// sentinels returns the texts of the sentinel errors that err matches.
func sentinels(err error) []string {
	var kinds []string
	for _, k := range []error{
		catalog.ErrNotFree, catalog.ErrNoMatch, catalog.ErrNotFound, catalog.ErrUnknownOutcome,
		catalog.ErrUnavailable, catalog.ErrCondemned, catalog.ErrTwin, catalog.ErrMalformed,
		catalog.ErrQueueFull, catalog.ErrPermitMismatch, catalog.ErrNoGrantStream,
		catalog.ErrNoTransactions, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, k) {
			kinds = append(kinds, k.Error())
		}
	}
	return kinds
}

// serverDate stands for the time of the server's clock in an expected document.
const serverDate = bson.DateTime(math.MaxInt64)

// wantDocument checks the fields of a document and their types, in any order. A date within a
// minute of the server's clock equals serverDate.
func (b *bench) wantDocument(raw bson.Raw, want bson.D) {
	b.Helper()
	if raw == nil {
		b.Fatalf("no document, want %v", want)
	}
	now := b.ago(0)
	show := func(v bson.RawValue) (string, bool) {
		ms, ok := v.DateTimeOK()
		isNow := bson.DateTime(ms) == serverDate || now.Sub(time.UnixMilli(ms)).Abs() < time.Minute
		return "server's clock", ok && isNow
	}
	wanted := lines("", assert.Value(bson.Marshal(want))(b), show)
	if got := lines("", raw, show); !slices.Equal(wanted, got) {
		b.Errorf("document\nwant %s\ngot  %s",
			strings.Join(wanted, "\n     "), strings.Join(got, "\n     "))
	}
}

// lines formats a document as sorted lines, one per field. The function show can replace a value by
// a name.
func lines(prefix string, raw bson.Raw, show func(bson.RawValue) (string, bool)) []string {
	elements, err := raw.Elements()
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range elements {
		path, v := prefix+e.Key(), e.Value()
		name, named := show(v)
		inner, nested := v.DocumentOK()
		list, isList := v.ArrayOK()
		switch {
		case named:
			all = append(all, path+" = "+name)
		case nested:
			all = append(all, lines(path+".", inner, show)...)
		case isList:
			all = append(append(all, path+" = array"), lines(path+".", bson.Raw(list), show)...)
		default:
			all = append(all, path+" = "+v.String())
		}
	}
	slices.Sort(all)
	return all
}

// near reports whether a time is within a minute of the server's clock.
func (b *bench) near(at time.Time) bool {
	b.Helper()
	return b.ago(0).Sub(at).Abs() < time.Minute
}

func (b *bench) wantUntouched(collection, id string, op func()) {
	b.Helper()
	before := b.document(collection, id)
	op()
	if after := b.document(collection, id); !slices.Equal(before, after) {
		b.Errorf("document was touched\nbefore %v\nafter  %v", before, after)
	}
}

func acquired(r catalog.Request, fence, rev int64) bson.D {
	return bson.D{
		{Key: "_id", Value: r.Name},
		{Key: "state", Value: int32(1)},
		{Key: "process", Value: r.Process},
		{Key: "who", Value: r.Who},
		{Key: "why", Value: r.Why},
		{Key: "when", Value: serverDate},
		{Key: "ts", Value: r.TS},
		{Key: "takeoverMS", Value: r.Takeover.Milliseconds()},
		{Key: "fence", Value: fence},
		{Key: "rev", Value: rev},
	}
}

// with returns a copy of doc with the given fields, which replace fields of the same name.
func with(doc bson.D, fields ...bson.E) bson.D {
	doc = slices.Clone(doc)
	for _, f := range fields {
		at := slices.IndexFunc(doc, func(e bson.E) bool { return e.Key == f.Key })
		if at < 0 {
			doc = append(doc, f)
		} else {
			doc[at] = f
		}
	}
	return doc
}

func without(doc bson.D, fields ...string) bson.D {
	return slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool {
		return slices.Contains(fields, e.Key)
	})
}

func field(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func label(v any) string { return strings.ReplaceAll(fmt.Sprintf("%T_%v", v, v), " ", "_") }
