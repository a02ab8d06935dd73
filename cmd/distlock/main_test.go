package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/configserver"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/effort"
)

// uri is the address of the embedded server that all tests share. Each test has a separate
// database.
var uri string

type suite struct{ *testing.M }

func (s suite) Run() int {
	ctx := context.Background()
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	uri = server.URI()
	code := s.M.Run()
	if err := server.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestMain(m *testing.M) {
	if internalCommand(os.Args) {
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		os.Exit(helper(os.Args[2], os.Args[3:]))
	}
	if signal.Ignored(os.Interrupt) { // commands would inherit this, as after sh -c "go test &"
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	effort.AtOnce(effort.Share(20))
	effort.Main(suite{m})
}

// self returns a command line that starts the test program as a helper, or a script.
func self(t *testing.T, args ...string) []string {
	t.Helper()
	if script, is := scripts[args[0]]; is {
		return append([]string{"sh", "-c", script, "sh"}, args[1:]...)
	}
	path := assert.Value(os.Executable())(t)
	return append([]string{path, "helper"}, args...)
}

// screen collects the output of a command. It is safe for concurrent use.
type screen struct {
	assert.Log
	errs *assert.Log // the error output
}

type result struct {
	code        int
	out, errOut string
}

// start runs distlock in this process. Before the test ends, it waits until distlock has returned.
func start(ctx context.Context, t *testing.T, args ...string) (*screen, <-chan result) {
	t.Helper()
	out := &screen{errs: &assert.Log{}}
	done := make(chan result, 1)
	exited := make(chan struct{})
	go func() { // ends with the command; the cleanup waits for it
		defer close(exited)
		code := run(ctx, args, nil, out, out.errs)
		done <- result{code, out.String(), out.errs.String()}
	}()
	t.Cleanup(func() { <-exited })
	return out, done
}

// want checks the exit code. It also checks that standard output or standard error contains each
// text.
func (r result) want(t *testing.T, code int, texts ...string) result {
	t.Helper()
	assert.Equal(t, r.code, code, "exit code is %d, want %d")
	for _, text := range texts {
		if !strings.Contains(r.out+r.errOut, text) {
			t.Errorf("output lacks %q", text)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s\nerrors:\n%s", r.out, r.errOut)
	}
	return r
}

// decoded returns the JSON output of a command.
func decoded[T any](t *testing.T, r result) (got T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, r.out)
	}
	return got
}

func cli(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut screen // a command and its guardian may write concurrently
	code := run(t.Context(), args, nil, &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

func await(t *testing.T, ended <-chan result) result {
	t.Helper()
	select {
	case r := <-ended:
		return r
	case <-timeout(t):
		t.Fatal("the command does not end")
		return result{}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := timeout(t); !holds(); {
		select {
		case <-limit:
			t.Fatalf("not in time: %s", what)
		default:
			clock.Sleep(clock.System(), 5*time.Millisecond, nil)
		}
	}
}

func awaitText(t *testing.T, said func() string, text string) {
	t.Helper()
	eventually(t, "it says "+text, func() bool { return strings.Contains(said(), text) })
}

// timeout returns a channel that receives a value after a minute.
func timeout(t *testing.T) <-chan time.Time {
	t.Helper()
	timer := clock.System().NewTimer(time.Minute)
	t.Cleanup(timer.Stop)
	return timer.C()
}

// ownServer starts an embedded server for one test. The function shut ends it early.
func ownServer(t *testing.T) (uri string, shut func()) {
	t.Helper()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	shut = func() { _ = server.Close(context.Background()) } // a second close is harmless
	t.Cleanup(shut)
	return server.URI(), shut
}

// base is the separate database of a test.
type base struct {
	t    *testing.T
	uri  string
	name string
	db   *mongo.Database

	token string // for the page
}

func newBase(t *testing.T) *base {
	t.Helper()
	t.Parallel()
	return newBaseOf(t, uri)
}

func newBaseOf(t *testing.T, uri string) *base {
	t.Helper()
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(uri)))(t)
	t.Cleanup(func() {
		assert.NoErr(t, client.Disconnect(context.Background()))
	})
	name := "test_" + bson.NewObjectID().Hex()
	return &base{t: t, uri: uri, name: name, db: client.Database(name)}
}

func (b *base) flags(args ...string) []string {
	return append(args, "--uri", b.uri, "--database", b.name)
}

func (b *base) cli(args ...string) result {
	b.t.Helper()
	return cli(b.t, b.flags(args...)...)
}

func (b *base) insert(collection string, doc any) {
	b.t.Helper()
	assert.Value(b.db.Collection(collection).InsertOne(b.t.Context(), doc))(b.t)
}

func (b *base) update(collection, id string, change ...any) {
	b.t.Helper()
	assert.Value(b.db.Collection(collection).UpdateByID(b.t.Context(), id, bsontest.D(change...)))(b.t)
}

func (b *base) lock(name string) catalog.Lock {
	b.t.Helper()
	raw := assert.Value(b.db.Collection(catalog.LocksCollection).
		FindOne(b.t.Context(), bsontest.D("_id", name)).Raw())(b.t)
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		b.t.Fatal(bad)
	}
	return l
}

// otherProcess is the id of a process that exists only in documents.
const otherProcess = "host:1:1700000000:id"

// hold writes a lock that otherProcess holds, and a recent ping of that process.
func (b *base) hold(name string, fence int64) {
	b.t.Helper()
	b.held(name, fence)
	b.ping(otherProcess, time.Second)
}

func (b *base) held(name string, fence int64) {
	b.t.Helper()
	b.heldBy(name, otherProcess, fence)
}

func (b *base) heldBy(name, process string, fence int64) {
	b.t.Helper()
	b.insert(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(1), "process", process,
		"who", process+":go:0", "why", "doing a balance round", "ts", bson.NewObjectID(),
		"when", bson.NewDateTimeFromTime(clock.System().Now().Wall), "fence", fence))
}

func (b *base) ping(process string, old time.Duration, extra ...bson.E) {
	b.t.Helper()
	at := clock.System().Now().Wall.Add(-old)
	b.insert(catalog.PingsCollection,
		append(bsontest.D("_id", process, "ping", bson.NewDateTimeFromTime(at)), extra...))
}

// full is a writer that fails like a file on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// If the output cannot be written, the command fails.
func TestRun_OutputThatCannotBeWritten_IsAnError(t *testing.T) {
	b := newBase(t)
	b.hold("job", 3)
	b.insert("rows", bsontest.D("_id", 1))
	for _, args := range [][]string{
		{"locks"}, {"locks", "job"}, {"ps"}, {"history"}, {"loops"}, {"claims", "rows"},
		{"claims", "rows", "--dead"},
		{"doctor", "--rounds", "1", "--contenders", "2"},
	} {
		var errOut screen
		if code := run(t.Context(), b.flags(args...), nil, full{}, &errOut); code != exitFailed ||
			!strings.Contains(errOut.String(), "no space left") {
			t.Errorf("%s: exit code is %d, and it says %q", args, code, errOut.String())
		}
	}
}
