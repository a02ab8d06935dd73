package configserver_test

import (
	"context"
	"flag"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

var rounds = flag.Int("rounds", effort.Share(100),
	"rounds of each of the two kinds of race through the front")

// Each round on the embedded server has exactly one winner, even while races run in other
// databases.
func TestCheck_Front_EveryRoundHasOneWinner(t *testing.T) {
	client := connect(t, start(t, configserver.Config{}).URI())
	for database, rounds := range map[string]int{"config": *rounds, "a": 15, "b": 15, "c": 15} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			report, err := configserver.Check(t.Context(), client,
				configserver.CheckOptions{Database: database, Rounds: rounds})
			assert.Must(t, err)
			t.Log(report)
			want := configserver.Tally{Rounds: rounds, One: rounds}
			if !report.Atomic || report.Acquire != want || report.CompareAndSet != want {
				t.Errorf("got %+v", report)
			}
			noScratchLeft(t, client.Database(database))
		})
	}
}

func TestCheck_BareFerretDB_SeveralWinners(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("on one processor its commands rarely overlap")
	}
	socket, stop, err := configserver.StartBare(t.TempDir())
	assert.Must(t, err)
	t.Cleanup(func() { assert.NoErr(t, stop()) })
	client := connect(t, "mongodb://"+url.PathEscape(socket)+"/")
	var report configserver.Report
	for range 20 { // a round may have one winner by chance, often on a busy processor
		if report, err = configserver.Check(t.Context(), client,
			configserver.CheckOptions{Rounds: 10}); err != nil {
			t.Fatal(err)
		}
		if !report.Atomic {
			break
		}
	}
	t.Log(report)
	if report.Atomic || report.Acquire.Several+report.CompareAndSet.Several == 0 {
		t.Errorf("a bare FerretDB passed: %+v", report)
	}
	if !strings.Contains(report.String(), "NOT atomic") {
		t.Errorf("report says %q", report)
	}
	noScratchLeft(t, client.Database("config"))
}

func noScratchLeft(t *testing.T, db *mongo.Database) {
	t.Helper()
	names := assert.Value(db.ListCollectionNames(t.Context(), bson.D{}))(t)
	for _, name := range names {
		if strings.HasPrefix(name, "distlock_check_") {
			t.Errorf("scratch collection %q is left", name)
		}
	}
}

func TestCheck_BadOptions_Refused(t *testing.T) {
	t.Parallel()
	client := connect(t, "mongodb://127.0.0.1:1/") // no command is sent
	for _, opts := range []configserver.CheckOptions{
		{Contenders: 1}, {Contenders: -1}, {Contenders: 257}, {Rounds: -1}, {Rounds: 10_001},
	} {
		if r, err := configserver.Check(t.Context(), client, opts); err == nil {
			t.Errorf("%+v gives %v", opts, r)
		}
	}
	if r, err := configserver.Check(t.Context(), nil, configserver.CheckOptions{}); err == nil {
		t.Errorf("no client gives %v", r)
	}
}

func TestCheck_ContextEnds_ScratchIsDropped(t *testing.T) {
	t.Parallel()
	s := start(t, configserver.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sent atomic.Int64
	monitor := &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) {
		if sent.Add(1) == 40 { // in the middle of a round
			cancel()
		}
	}}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI()).SetMonitor(monitor))
	assert.Must(t, err)
	defer func() { assert.NoErr(t, client.Disconnect(context.WithoutCancel(ctx))) }()
	if r, err := configserver.Check(ctx, client, configserver.CheckOptions{}); err == nil {
		t.Errorf("a check whose context ended gives %v", r)
	}
	noScratchLeft(t, client.Database("config"))
}

// While writers run, a reader gets only whole documents, and never an older state after a newer
// one.
func TestFront_ReadsBesideWrites_SeeWholeDocumentsInOrder(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, configserver.Config{}).URI())
	locks := client.Database("config").Collection("locks")
	const writers, each = 4, 50
	if _, err := locks.InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "balancer"}, {Key: "fence", Value: 0}, {Key: "copy", Value: 0},
	}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for range each {
				update := d("$inc", bson.D{{Key: "fence", Value: 1}, {Key: "copy", Value: 1}})
				assert.NoErr(t, locks.FindOneAndUpdate(t.Context(), byID("balancer"), update).Err())
			}
		})
		running.Go(func() { // ends with the last write
			for last := 0; last < writers*each && !t.Failed(); {
				var got struct{ Fence, Copy int }
				assert.NoErr(t, locks.FindOne(t.Context(), byID("balancer")).Decode(&got))
				if got.Fence < last || got.Fence != got.Copy {
					t.Errorf("read %+v after %d", got, last)
				}
				last = got.Fence
			}
		})
	}
	running.Wait()
}
