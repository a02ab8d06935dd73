package ui_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/singleton"
)

// put stores documents in the database of the page.
func put(t *testing.T, c *ui.Config, collection string, docs ...any) {
	t.Helper()
	assert.Value(c.Client.Database("test").Collection(collection).InsertMany(t.Context(), docs))(t)
}

// The page lists and counts failing, stopped and malformed loops. The page of the locks has a card
// for failing and malformed ones.
func TestPage_Loops_TroubleIsListedAndCounted(t *testing.T) {
	t.Parallel()
	loop := func(name, state string, failures int64) bson.D {
		return bsontest.D("_id", name, "kind", "loop", "state", state, "fence", int64(1), "rev", int64(1),
			"failures", failures, "seen", bson.NewDateTimeFromTime(time.Now()))
	}
	w := newWorld(t, func(c *ui.Config) {
		c.Client = served(t)
		put(t, c, singleton.RecordsCollection, loop("fine", "done", 0), loop("fails-once", "failed", 0),
			loop("fails-often", "done", 3), loop("is-stopped", "done", 0), loop("has-window", "done", 0),
			bsontest.D("_id", "is-odd", "kind", int32(5)))
		put(t, c, singleton.SettingsCollection, bsontest.D("_id", "is-stopped", "stopped", true),
			bsontest.D("_id", "has-window", "activeWindow", bsontest.D("start", "23:00", "stop", "6:00")))
	})
	w.hold(w.process(), "job")
	want(t, w.get("/"), "Failing loops</span><strong>2<",
		`href="/loops?show=malformed" class="bad"><span>Malformed</span><strong>1<`)
	want(t, w.get("/loops"), "outside 23:00-06:00")
	for show, names := range map[string]string{"failed": "fails-often fails-once",
		"stopped": "has-window is-stopped", "malformed": "is-odd",
		"": "is-odd fails-often fails-once has-window is-stopped fine"} {
		page := main(w.get("/loops?show=" + show))
		var found []string
		for _, name := range regexp.MustCompile(`class="row" href="/lock\?name=([\w-]+)"`).
			FindAllStringSubmatch(page, -1) {
			found = append(found, name[1])
		}
		assert.Equal(t, strings.Join(found, " "), names, "show="+show+" lists %s, want %s")
		want(t, page, fmt.Sprintf(`aria-current="true"><span>%s</span><strong>%d<`, map[string]string{"": "All",
			"failed": "Failing", "stopped": "Stopped", "malformed": "Malformed"}[show], len(found)))
	}
}

// The page lists the queues with dead rows first. It counts rows that are not due separately, and
// counts no rescuer as a worker.
func TestPage_Queues_CountsAndOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *ui.Config) {
		c.Client = served(t)
		put(t, c, "mails", bsontest.D("_id", 1, "at", bson.NewDateTimeFromTime(time.Now().Add(time.Hour))),
			bsontest.D("_id", 2, "at", bson.NewDateTimeFromTime(time.Now().Add(-time.Hour))))
		put(t, c, "orders", bsontest.D("_id", 1, "claim", bsontest.D("state", "dead")))
	})
	m := w.process()
	due := distlock.Why(`claims rows, due by "at"`)
	w.hold(m, "claim:test.mails:queue:1", due)
	w.hold(m, "claim:test.mails:queue:2", due)
	w.hold(m, "claim:test.mails:queue:rescue", due)
	w.hold(m, "claim:test.orders:queue:1")
	w.hold(m, "claim:test.noslot")
	w.hold(m, "claim:test.noslot:1")
	page := main(w.get("/queues"))
	cells := func(collection string) (all []string) {
		_, row, _ := strings.Cut(page, `data-k="test.`+collection+` `)
		row, _, _ = strings.Cut(row, "</tr>")
		for _, cell := range regexp.MustCompile(`data-th="(\w+)">(?:<a[^>]*>)?\s*(\d+)`).
			FindAllStringSubmatch(row, -1) {
			all = append(all, cell[1]+" "+cell[2])
		}
		return all
	}
	assert.Slices(t, cells("mails"), []string{"workers 2", "ready 1", "later 1", "claimed 0", "retrying 0",
		"dead 0", "done 0"}, "%v of mails, want %v")
	assert.Slices(t, cells("orders"), []string{"workers 1", "ready 0", "later 0", "claimed 0", "retrying 0",
		"dead 1", "done 0"}, "%v of orders, want %v")
	if strings.Index(page, "test.orders") > strings.Index(page, "test.mails") {
		t.Error("the queue with a dead row is not first")
	}
	want(t, page, `queues <span class="count">2<`)
}

// The page shows the offset of each process's clock, and a process without locks that was declared
// dead. A wrong clock of the page's machine changes no age.
func TestPage_Processes_ClocksAndTheDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *ui.Config) {
		c.Client = served(t)
		at := bson.NewDateTimeFromTime(time.Now().Add(90 * time.Second).Truncate(time.Second))
		local := append(ping("ahead:1:1:a", 0)[:0:0], ping("ahead:1:1:a", 0)...)
		for i := range local {
			if local[i].Key == "ping" {
				local[i].Value = bson.NewDateTimeFromTime(at.Time().Add(-90 * time.Second))
			}
		}
		put(t, c, catalog.PingsCollection, append(local, bson.E{Key: "local", Value: at}),
			append(ping("condemned:1:1:a", 0), bson.E{Key: "condemned",
				Value: bsontest.D("by", "x", "evidence", "y")}))
	})
	w.hold(w.process(), "job")
	for _, wrong := range []time.Duration{0, time.Hour} {
		page := ui.New(clock.With(t.Context(), wrongClock{clock.System(), wrong}), w.config)
		t.Cleanup(page.Close)
		w.page = page
		text := main(w.get("/processes"))
		want(t, text, `data-th="clock">1m30s<`, "All</span><strong>3<", "Dead without locks</span><strong>1<")
	}
}

// If no lock is held, the page measures the pings by the server's clock, too. So a wrong clock of
// the page's machine makes no live process dead.
func TestPage_WrongClockAndNoLockHeld_LiveProcessesAreNotDead(t *testing.T) {
	t.Parallel()
	client := served(t)
	pings := []bson.D{ping("alive:1:1:a", 0), ping("alive:2:1:b", 0)}
	assert.Value(client.Database("test").Collection(catalog.PingsCollection).
		InsertMany(t.Context(), pings))(t)
	w := newWorld(t, func(c *ui.Config) { c.Client = client })
	cfg := w.config
	cfg.Client = client
	w.page = ui.New(clock.With(t.Context(), wrongClock{clock.System(), time.Hour}), cfg)
	t.Cleanup(w.page.Close)
	want(t, main(w.get("/processes")), "Dead without locks</span><strong>0<", "All</span><strong>2<")
}

// wrongClock differs from the server's clock.
type wrongClock struct {
	clock.Clock
	ahead time.Duration
}

func (c wrongClock) Now() clock.Reading {
	now := c.Clock.Now()
	now.Wall = now.Wall.Add(c.ahead)
	return now
}

// A ping is late after a quarter of the takeover time, and bad when it is as old as the takeover
// time or its process was declared dead. The row of a lock with a dead holder shows that holder.
func TestPage_Pings_AreClassified(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		type class struct {
			ago  time.Duration
			name string
			more []bson.E
		}
		all := map[string]class{
			"young": {4 * time.Second, "ok", nil}, "late": {6 * time.Second, "late", nil},
			"silent": {21 * time.Second, "bad", nil},
			"condemned": {0, "bad", []bson.E{{Key: "condemned",
				Value: bsontest.D("by", "x", "evidence", "y")}}},
		}
		at := bson.NewDateTimeFromTime(time.Now().Add(-time.Minute))
		one := func(process string) bson.D {
			return bsontest.D("ts", bson.NewObjectID(), "process", process, "mode", "shared", "fence", int64(7),
				"since", at)
		}
		for name, c := range all {
			id := name + ":1:1:a"
			assert.Must(t, w.mem.Put(catalog.PingsCollection, append(ping(id, c.ago), c.more...)))
			first := one("young:1:1:a")
			assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", name, "state", int32(1),
				"mode", "shared", "ts", first[0].Value, "process", "young:1:1:a", "fence", int64(7), "when", at,
				"sharers", bson.A{first, one(id)})))
		}
		for name, c := range all {
			id := name + ":1:1:a"
			page := w.get("/lock?name=" + name)
			_, card, _ := strings.Cut(page, `title="`+id+`"`)
			card, _, _ = strings.Cut(card, "</article>")
			want(t, card, `class="pulse `+c.name+`"`)
			row := main(w.get("/?q=" + id))
			if shown := strings.Contains(row, `title="`+id+`"`); name != "young" && shown != (c.name == "bad") {
				t.Errorf("%s: the dead holder is shown: %v\n%.3000s", name, shown, row)
			}
		}
	})
}

// An election is a lock with candidates, even if its holder is foreign. Elections in trouble come
// first, then those with more candidates.
func TestPage_Elections_CandidatesSuffice(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.foreign("crown", bson.NewObjectID())
		w.wait(t.Context(), w.process(), "crown", distlock.Label("election"), distlock.Why("10.0.0.1:80"))
		w.hold(w.process(), "a", distlock.Label("election"))
		w.hold(w.process(), "b", distlock.Label("election"))
		w.wait(t.Context(), w.process(), "b", distlock.Label("election"))
		time.Sleep(2 * time.Second)
		want(t, w.get("/elections"), "crown", "10.0.0.1:80")
		ordered(t, w.get("/elections"), "crown", "b", "a")
	})
}

// The page keeps 20,000 holders, and says that it omits others.
func TestPage_ManyHolders_SaysThatOthersAreOmitted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for i := range 21 {
			var all bson.A
			for n := range 1_000 {
				all = append(all, bsontest.D("ts", bson.NewObjectID(), "process", fmt.Sprint("h:1:1:", n), "mode",
					"shared", "fence", int64(n+1)))
			}
			first := all[0].(bson.D)
			assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", fmt.Sprintf("table %02d", i),
				"state", int32(1), "mode", "shared", "ts", first[0].Value, "process", "h:1:1:0", "fence",
				int64(1_000), "sharers", all)))
			if i == 0 {
				lack(t, w.get("/"), "more locks than this page keeps")
				time.Sleep(2 * time.Second)
			}
		}
		want(t, w.get("/"), "more locks than this page keeps")
	})
}

// If a client does not read, or sends only half of a body in chunks, the page closes the connection
// within 15 seconds.
func TestPage_StalledClient_IsNotWaitedFor(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		on := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: w.page} //nolint:gosec // the timeouts of the page itself are tested
		go func() { _ = server.Serve(on) }()
		t.Cleanup(func() { _ = server.Close() })
		for name, request := range map[string]string{
			"stream that is not read": "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
			"half of a body in chunks": "POST /break?name=x HTTP/1.1\r\nHost: localhost\r\n" +
				"Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx",
		} {
			client, conn := net.Pipe()
			on.accepted <- conn
			assert.Value(io.WriteString(client, request))(t)
			time.Sleep(15 * time.Second)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			context.AfterFunc(ctx, func() { _ = client.SetReadDeadline(time.Now()) })
			begun := time.Now()
			_, err := io.Copy(io.Discard, client)
			if took := time.Since(begun); took > time.Second {
				t.Errorf("%s: the connection was open for another %v (%v)", name, took, err)
			}
			cancel()
			_ = client.Close()
		}
	})
}
