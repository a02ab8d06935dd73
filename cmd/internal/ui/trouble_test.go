package ui_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// troubled creates a lock with a dead holder, a lock with a long queue, and locks without trouble.
func (w *world) troubled() {
	w.t.Helper()
	at := bson.NewDateTimeFromTime(time.Now())
	put := func(collection string, doc bson.D) {
		assert.Must(w.t, w.mem.Put(collection, doc))
	}
	for id, ago := range map[string]time.Duration{"host:1:1:alive": 0,
		"host:2:1:dead": 4 * time.Second} {
		put(catalog.PingsCollection,
			bsontest.D("_id", id, "ping", bson.NewDateTimeFromTime(time.Now().Add(-ago)), "seq", int64(1),
				"takeoverMS", takeoverTime.Milliseconds(), "pingMS", pingTime.Milliseconds()))
	}
	waiters := func(n int) (line bson.A) {
		for range n {
			line = append(line,
				bsontest.D("ts", bson.NewObjectID(), "process", "host:1:1:alive", "since", at))
		}
		return line
	}
	lock := func(name, holder string, line bson.A) {
		put(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(1), "ts", bson.NewObjectID(),
			"process", holder, "fence", int64(7), "when", at, "waiters", line))
	}
	for i := range 60 {
		lock(fmt.Sprintf("a-fine-%02d", i), "host:1:1:alive", waiters(i%2))
	}
	lock("b-line", "host:1:1:alive", waiters(12))
	lock("c-line", "host:1:1:alive", waiters(13))
	lock("z-dead", "host:2:1:dead", waiters(1))
}

// Locks in trouble come first and are counted in cards that link to them. The page of such a lock
// shows the time of its takeover and the next holder.
func TestPage_Trouble_ComesFirstAndIsCounted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.troubled()
		want(t, w.get("/lock?name=z-dead"), "It will be taken in about 16s",
			"The takeover time is 20s; the next waiter gets it: host:1.")
		want(t, w.get("/lock?name=a-fine-00"), "Its holder pings",
			"the first caller gets it; no process waits")
		time.Sleep(20 * time.Second)
		w.troubled() // all live processes have pinged
		assert.Must(t, w.mem.Put(catalog.PingsCollection, bsontest.D("_id", "host:2:1:dead",
			"seq", int64(1), "ping", bson.NewDateTimeFromTime(time.Now().Add(-time.Minute)),
			"takeoverMS", takeoverTime.Milliseconds(), "pingMS", pingTime.Milliseconds())))
		time.Sleep(2 * time.Second)
		page := main(w.get("/"))
		var at []int
		for _, name := range []string{"z-dead", "c-line", "b-line", "a-fine-00"} {
			at = append(at, strings.Index(page, "name="+name))
		}
		if at[0] < 0 || !slices.IsSorted(at) {
			t.Errorf("the dead, the longer queue, the long one and the others are at %d:\n%.4000s", at, page)
		}
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
		processes := main(w.get("/processes"))
		if dead, alive := strings.Index(processes, "host:2"), strings.Index(processes,
			"host:1"); dead < 0 || alive < dead {
			t.Errorf("the dead holder is not first:\n%.4000s", processes)
		}
		want(t, processes, "Dead with locks</span><strong>1", "<summary>62 locks</summary>",
			"and 12 more")
	})
}

// A malformed lock is not shown as missing. A lock whose holder has no ping or a malformed ping is
// in trouble, with the remedy. Every waiter is counted.
func TestPage_NoPingOrMalformed_IsTrouble(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		put := func(collection, id string, more ...bson.E) {
			assert.Must(t, w.mem.Put(collection, append(bsontest.D("_id", id), more...)))
		}
		var line bson.A
		for range 60 {
			line = append(line, bsontest.D("ts", bson.NewObjectID(), "process", "host:6:1:f"))
		}
		put(catalog.PingsCollection, "host:5:1:bad", bson.E{Key: "ping", Value: "yesterday"})
		put(catalog.LocksCollection, "odd", bson.E{Key: "state", Value: "held"})
		for name, holder := range map[string]string{"bad": "host:5:1:bad", "gone": "host:4:1:gone"} {
			put(catalog.LocksCollection, name, bson.E{Key: "state", Value: int32(1)},
				bson.E{Key: "ts", Value: bson.NewObjectID()}, bson.E{Key: "process", Value: holder},
				bson.E{Key: "who", Value: holder + ":election:ab"}, bson.E{Key: "waiters", Value: line})
			line = nil
		}
		lack(t, w.get("/lock?name=odd"), "There is no such lock")
		want(t, w.get("/lock?name=odd"), "must be a whole number")
		want(t, w.get("/?show=silent"), "name=bad", "name=gone", "Dead or silent</span><strong>2",
			"remove its ping document")
		want(t, w.get("/processes"), "Dead with locks</span><strong>2", ">60<", "waits in 60 places")
		lack(t, w.get("/processes"), ">leader<")
	})
}
