package ui_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/singleton"
)

// troubled writes a lock with a dead holder, two locks with long queues, and 60 locks without
// trouble.
func (w *world) troubled() {
	w.t.Helper()
	at := bson.NewDateTimeFromTime(time.Now())
	put := func(collection string, doc bson.D) {
		assert.Must(w.t, w.mem.Put(collection, doc))
	}
	for id, ago := range map[string]time.Duration{"host:1:1:alive": 0,
		"host:2:1:dead": 4 * time.Second} {
		put(catalog.PingsCollection, ping(id, ago))
	}
	waiters := func(n int) (queue bson.A) {
		for range n {
			queue = append(queue,
				bsontest.D("ts", bson.NewObjectID(), "process", "host:1:1:alive", "since", at))
		}
		return queue
	}
	lock := func(name, holder string, queue bson.A) {
		put(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(1), "ts", bson.NewObjectID(),
			"process", holder, "fence", int64(7), "when", at, "waiters", queue))
	}
	for i := range 60 {
		lock(fmt.Sprintf("a-fine-%02d", i), "host:1:1:alive", waiters(i%2))
	}
	lock("b-line", "host:1:1:alive", waiters(12))
	lock("c-line", "host:1:1:alive", waiters(13))
	lock("z-dead", "host:2:1:dead", waiters(1))
}

// ordered fails the test unless the page has links to these locks in this order.
func ordered(t *testing.T, page string, names ...string) {
	t.Helper()
	var at []int
	for _, name := range names {
		at = append(at, strings.Index(page, "/lock?name="+name+"\""))
	}
	if at[0] < 0 || !slices.IsSorted(at) {
		t.Errorf("%q are at %d:\n%.4000s", names, at, page)
	}
}

// Locks in trouble come first, and figures with links count them. The page of a lock shows the time
// of the takeover and the next holder.
func TestPage_Trouble_ComesFirstAndIsCounted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.troubled()
		want(t, w.get("/lock?name=z-dead"), "in 16s at the earliest",
			"20s is the takeover time", "the next waiter gets it: host:1<")
		want(t, w.get("/lock?name=a-fine-00"), "the first caller gets it; no process waits")
		time.Sleep(20 * time.Second)
		w.troubled() // all live processes have pinged
		assert.Must(t, w.mem.Put(catalog.PingsCollection, ping("host:2:1:dead", time.Minute)))
		time.Sleep(2 * time.Second)
		page := main(w.get("/"))
		ordered(t, page, "z-dead", "c-line", "b-line", "a-fine-00")
		for show, text := range map[string]string{"held": "Held</span><strong>63",
			"waited": "Waited for</span><strong>33", "silent": "Dead or silent</span><strong>1",
			"long": "Long queues</span><strong>2", "all": "All names</span><strong>63"} {
			want(t, page, text, `href="/?show=`+show+`"`)
		}
		want(t, w.get("/?show=silent"), "z-dead", "1 to 1 of 1<")
		want(t, w.get("/?show=long"), "b-line", "c-line", "1 to 2 of 2<")
		byName := main(w.get("/?sort=name"))
		if strings.Contains(byName, "name=z-dead") {
			t.Errorf("by name the last of 63 is on the first page of 50:\n%.4000s", byName)
		}
		timeline := main(w.get("/timeline"))
		want(t, timeline, " open dead", "3 more are omitted")
		ordered(t, timeline, "z-dead", "c-line", "b-line", "a-fine-01", "a-fine-02")
		processes := main(w.get("/processes"))
		if dead, alive := strings.Index(processes, "host:2"), strings.Index(processes,
			"host:1"); dead < 0 || alive < dead {
			t.Errorf("the dead holder is not first:\n%.4000s", processes)
		}
		want(t, processes, "Dead with locks</span><strong>1", "<summary>62 locks</summary>",
			"and 12 more")
	})
}

// The page of a malformed lock shows the problem. A lock whose holder has no ping or a malformed
// ping is in trouble, and the page shows the remedy. The page counts all waiters, and begins with
// the locks that have more of them.
func TestPage_NoPingOrMalformed_IsTrouble(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		put := func(collection, id string, more ...bson.E) {
			assert.Must(t, w.mem.Put(collection, append(bsontest.D("_id", id), more...)))
		}
		var queue bson.A
		for range 60 {
			queue = append(queue, bsontest.D("ts", bson.NewObjectID(), "process", "host:6:1:f"))
		}
		put(catalog.PingsCollection, "host:bad:1:x", bson.E{Key: "ping", Value: "yesterday"})
		put(catalog.LocksCollection, "odd", bson.E{Key: "state", Value: "held"})
		for _, name := range []string{"gone", "bad"} {
			holder := "host:" + name + ":1:x"
			put(catalog.LocksCollection, name, bson.E{Key: "state", Value: int32(1)},
				bson.E{Key: "ts", Value: bson.NewObjectID()}, bson.E{Key: "process", Value: holder},
				bson.E{Key: "who", Value: holder + ":election:ab"},
				bson.E{Key: "waiters", Value: queue})
			queue = nil
		}
		lack(t, w.get("/lock?name=odd"), "There is no such lock")
		want(t, w.get("/lock?name=odd"), "must be a whole number")
		want(t, w.get("/?show=silent"), "name=bad", "name=gone", "Dead or silent</span><strong>2",
			"remove its ping document")
		want(t, w.get("/"), `href="#malformed" class="bad"><span>Malformed</span><strong>2<`)
		want(t, w.get("/processes"), "Dead with locks</span><strong>2", ">60<", "waits in 60 places")
		lack(t, w.get("/processes"), ">leader<")
		ordered(t, w.get("/processes"), "gone", "bad")
		ordered(t, w.get("/elections"), "gone", "bad")
	})
}

// ping returns the ping document of a process with the given age.
func ping(id string, ago time.Duration) bson.D {
	return bsontest.D("_id", id, "ping", bson.NewDateTimeFromTime(time.Now().Add(-ago)),
		"seq", int64(1), "takeoverMS", takeoverTime.Milliseconds(), "pingMS", pingTime.Milliseconds())
}

// The page counts dead processes without locks by the server's clock. If the pings cannot be read,
// or are too many, the page shows no count.
func TestPage_Processes_CountsOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()
	client := served(t)
	pings := client.Database("test").Collection(catalog.PingsCollection)
	page := func() string {
		w := newWorld(t, func(c *ui.Config) { c.Client = client })
		return main(w.get("/processes"))
	}
	insert := func(n int, host string, ago time.Duration) {
		t.Helper()
		var all []bson.D
		for i := range n {
			all = append(all, ping(fmt.Sprint(host, ":1:1:", i), ago))
		}
		assert.Value(pings.InsertMany(t.Context(), all))(t)
	}
	insert(3, "dead", 2*time.Hour)
	want(t, page(), "Processes <span class=\"count\">3<", "All</span><strong>3<",
		"Dead without locks</span><strong>3<")
	insert(497, "alive", 0)
	text := page()
	want(t, text, "All</span><strong>500<", "Dead without locks</span><strong>3<")
	if strings.Index(text, "q=dead") < strings.LastIndex(text, "q=alive") {
		t.Error("a dead process without locks is not last")
	}
	insert(1, "another", 0)
	unknown := []string{"<h1>Processes</h1>", "All</span><strong>-<",
		"Dead with locks</span><strong>0<",
		"Dead without locks</span><strong>-<"}
	want(t, page(), append(unknown, "More than 500 processes ping")...)
	assert.Must(t, client.Disconnect(context.Background()))
	want(t, page(), append(unknown, "Processes that neither hold nor wait are not shown: ")...)
	for _, of := range []string{"?show=gone", "?q=x"} {
		w := newWorld(t, nil)
		gone := main(w.get("/processes" + of))
		want(t, gone, append(unknown, "reading the server panicked")...)
		lack(t, gone, "No process matches", "No process holds")
	}
}

// The page counts all loops, queues and dead rows, even if it lists only a part, and lists failing
// loops first. It shows no counts for a lock whose name only resembles the name of a queue.
func TestPage_MoreLoopsAndQueuesThanAreShown_AllAreCounted(t *testing.T) {
	t.Parallel()
	client := served(t)
	var loops []bson.D
	for i := range 502 {
		loops = append(loops, bsontest.D("_id", fmt.Sprintf("loop-%03d", i), "kind", "loop",
			"state", "done", "fence", int64(1), "rev", int64(1), "failures", int64(i/501),
			"seen", bson.NewDateTimeFromTime(time.Now())))
	}
	records := client.Database("test").Collection(singleton.RecordsCollection)
	assert.Value(records.InsertMany(t.Context(), loops))(t)
	w := newWorld(t, func(c *ui.Config) { c.Client = client })
	m := w.process()
	w.hold(m, "claim:odd:x:1")
	for i := range 26 {
		w.hold(m, fmt.Sprintf("claim:test.rows%02d:queue:1", i))
	}
	assert.Value(client.Database("test").Collection("rows00").InsertOne(t.Context(),
		bsontest.D("_id", 1, "claim", bsontest.D("state", "dead"))))(t)
	want(t, w.get("/"), "Failing loops</span><strong>1<", "Dead rows</span><strong>1<")
	page := main(w.get("/loops"))
	want(t, page, "schedules <span class=\"count\">502<", "All</span><strong>502<",
		"Failing</span><strong>1<", "loop-501", "The first 500 are listed")
	page = main(w.get("/queues"))
	want(t, page, "queues <span class=\"count\">26<", "The first 20 by name are counted")
}

// silentDialer returns no connection. It blocks until the context ends.
type silentDialer struct{}

func (silentDialer) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// If the server does not answer the count of dead rows, the page is delayed by at most three
// seconds. The limit of this test is ten seconds larger, because this server does not answer the
// read of the loops either.
func TestPage_DeadRowsThatCannotBeCounted_DelayLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := assert.Value(mongo.Connect(options.Client().SetDialer(silentDialer{}).SetHosts(
			[]string{"localhost:1"})))(t)
		defer func() { _ = client.Disconnect(context.Background()) }()
		w := newWorld(t, func(c *ui.Config) { c.Client = client })
		w.hold(w.process(), "claim:test.rows:queue:1")
		const limit = 13 * time.Second
		for range 2 {
			begun := time.Now()
			page := main(w.get("/"))
			if took := time.Since(begun); took > limit {
				t.Errorf("the page took %v, want at most %v", took, limit)
			}
			want(t, page, "claim:test.rows:queue:1")
			lack(t, page, "Dead rows")
			time.Sleep(100 * time.Second) // the pause after such a round
		}
	})
}
