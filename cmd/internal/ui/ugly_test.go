package ui_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/configserver"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/fault"
	"mongodlm/singleton"
)

// These strings are as long as in real deployments.
var (
	longName  = "tenants/" + strings.Repeat("0123456789-", 90) + "/end"
	longError = strings.Repeat("connection(10.42.17.203:27017[-181]) socket was unexpectedly "+
		"closed: EOF; retry 3 of 3, ", 12)
	oneWord = strings.Repeat("x", 1_000)
)

// pod returns the process id of a pod.
func pod(n int) string {
	host := fmt.Sprintf("payments-reconciliation-worker-deployment-7d9f8c6b5d-x%04d.prod", n)
	return fmt.Sprintf("%s:%d:1700000000:%032x", host, n+1, n)
}

// uglyBase is the content of a database with two hundred locks, of which twenty are in trouble.
type uglyBase struct {
	rows   map[string][]any // documents by collection
	events []history.Entry
	now    time.Time
	late   map[int]time.Duration // ages of pings by process
}

func (u *uglyBase) put(collection string, doc bson.D) {
	u.rows[collection] = append(u.rows[collection], doc)
}

func (u *uglyBase) before(d time.Duration) bson.DateTime {
	return bson.NewDateTimeFromTime(u.now.Add(-d))
}

func (u *uglyBase) entry(n int, why, label string, at time.Duration, more ...bson.E) bson.D {
	return append(bsontest.D("ts", bson.NewObjectID(), "process", pod(n),
		"who", pod(n)+":"+label+":ab12", "why", why, "since", u.before(at)), more...)
}

func (u *uglyBase) lock(name string, n int, why string, waiters ...any) {
	doc := bsontest.D("_id", name, "state", int32(1), "ts", bson.NewObjectID(),
		"process", pod(n), "who", pod(n)+":worker:ab12", "why", why,
		"when", u.before(76*time.Hour), "fence", u.now.UnixMilli()+int64(n))
	if len(waiters) > 0 {
		doc = append(doc, bson.E{Key: "waiters", Value: bson.A(waiters)})
	}
	u.put(catalog.LocksCollection, doc)
}

func uglyData(now time.Time) *uglyBase {
	u := &uglyBase{rows: map[string][]any{}, now: now,
		late: map[int]time.Duration{20: 20 * time.Minute, 21: 50 * time.Hour, 22: time.Hour}}
	for n := range 60 {
		age := u.late[n]
		if n >= 40 {
			age = time.Duration(n) * time.Hour // dead, without locks
		}
		ping := bsontest.D("_id", pod(n), "ping", u.before(age), "seq", int64(9), "local", u.before(
			age-1234567*time.Microsecond), "takeoverMS", int64(900_000), "pingMS", int64(240_000))
		if n == 22 {
			ping = append(ping,
				bson.E{Key: "condemned", Value: bsontest.D("by", pod(1), "evidence", longError)})
		}
		u.put(catalog.PingsCollection, ping)
	}
	for i := range 180 {
		u.lock(fmt.Sprintf("tenant-%04d/invoices/nightly", i), i%20, "closing the month of tenant "+
			strings.Repeat("north ", i%12))
	}
	for i := range 18 {
		u.lock(fmt.Sprintf("zz-trouble-%02d", i), 20+i%3, longError,
			u.entry(1, "next", "worker", time.Minute))
	}
	var queue, candidates []any
	for i := range 40 {
		queue = append(queue, u.entry(i, oneWord, "worker-with-a-label-of-its-own",
			time.Duration(i)*time.Minute, bson.E{Key: "takeoverMS", Value: int64(60_000)}))
		candidates = append(candidates,
			u.entry(i, `{"zone": "eu-central-1a", "address": "10.42.17.203:8443", "build": "`+oneWord[:120]+
				`"}`, "election", time.Minute))
	}
	u.lock(longName, 20, oneWord, queue...)
	u.lock("hot", 3, longError, queue...)
	u.lock("leader", 3, longError, candidates...)
	u.put(catalog.LocksCollection, bsontest.D("_id", "odd "+oneWord[:300], "state", "held"))
	first := u.entry(2, longError, "reader", time.Hour, bson.E{Key: "mode", Value: "shared"},
		bson.E{Key: "fence", Value: int64(7)})
	u.put(catalog.LocksCollection, bson.D{{Key: "_id", Value: "table"}, {Key: "state",
		Value: int32(1)}, {Key: "mode", Value: "shared"}, first[0], first[1], {Key: "fence",
		Value: int64(8)}, {Key: "sharers", Value: bson.A{first, u.entry(20, longError, "reader",
		time.Hour, bson.E{Key: "mode", Value: "shared"}, bson.E{Key: "fence", Value: int64(8)})}}})
	u.loops()
	u.queue()
	u.past()
	return u
}

func (u *uglyBase) loops() {
	for i := range 30 {
		runs, state, failed, text := bson.A{}, "done", int64(0), ""
		if i%10 == 3 {
			state, failed, text = "failed", 1234567, longError[:1000]
		}
		for k := range 20 {
			runs = append(runs, bsontest.D("state", state, "process", pod(k%3),
				"fence", int64(k), "begun", u.before(time.Hour-time.Duration(k)*time.Minute),
				"ended", u.before(time.Hour-time.Duration(k)*time.Minute-time.Second),
				"tookMicros", int64(1_034_500), "error", text[:min(len(text), 200)]))
		}
		name := fmt.Sprintf("loop-%02d-recompute-the-balances-of-all-tenants", i)
		if i == 13 {
			name = longName
		}
		u.put(singleton.RecordsCollection, bsontest.D("_id", name, "kind", "loop", "state", state,
			"process", pod(i%20), "fence", int64(7), "begun", u.before(time.Minute), "ended", u.before(
				time.Minute), "next", u.before(-time.Hour), "rounds", int64(987654321), "failures", failed,
			"missed", int64(7654321), "lastError", text, "runs", runs, "seen", u.before(0), "rev", int64(1)))
	}
	u.put(singleton.RecordsCollection, bsontest.D("_id", "odd loop", "kind", oneWord))
}

func (u *uglyBase) queue() {
	u.lock("claim:test.invoices_of_all_tenants_that_were_not_sent:"+strings.Repeat("queue", 40)+":1",
		1, "")
	for i := range 120 {
		errors := bson.A{}
		for k := range 10 {
			errors = append(errors, bsontest.D("attempt", int64(k+1), "process", pod(k),
				"error", longError[:1000], "at", u.before(time.Hour)))
		}
		u.put("invoices_of_all_tenants_that_were_not_sent",
			bsontest.D("_id", fmt.Sprint(oneWord[:300], i),
				"claim", bsontest.D("state", "dead", "attempts", int64(10), "error", oneWord,
					"errors", errors)))
	}
}

func (u *uglyBase) past() {
	evidence := fmt.Sprintf(`rule watch: ping of "%s" unchanged for 1m3s of 1m0s (contender's clock `+
		`1m3s, server's clock 1m3s)`, pod(20)) + longError
	kinds := []string{"acquired", "lost", "taken over", "broken", "evicted", "released late"}
	for i := range 40 {
		u.events = append(u.events, history.Entry{ID: bson.NewObjectID(), Kind: kinds[i%6],
			At: u.now.Add(-time.Duration(i) * 4 * time.Second), Process: pod(i % 5), Previous: pod(20),
			Fence: int64(100 - i), Why: longError, Rule: "watch", Evidence: evidence,
			Cause: longError, WaitedMS: 60_000, HeldMS: 3_600_000,
			Name: []string{longName, "hot"}[i%2], Session: bson.NewObjectID()})
	}
}

// served returns a client of a new embedded server.
func served(t *testing.T) *mongo.Client {
	t.Helper()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(server.URI())))(t)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// ugly returns a world with long and malformed data. The locks are in memory, and the rest is on an
// embedded server.
func ugly(t *testing.T) *world {
	t.Helper()
	client := served(t)
	const host = "mongodb-replica-set-of-the-payments-team-0.mongodb.svc.cluster.local:27017"
	w := newWorld(t, func(c *ui.Config) {
		c.AllowBreak, c.Client, c.Hosts = true, client, host
		c.Members = func(context.Context) ([]ui.Member, error) {
			return []ui.Member{{Host: host,
				Kind: "primary", Ahead: -1234567 * time.Millisecond, RoundTrip: 1234567 * time.Nanosecond},
				{Host: "10.0.0.1:27017", Kind: "secondary", Problem: longError}}, nil
		}
	})
	data := uglyData(time.Now())
	w.history.put(data.events...)
	for collection, rows := range data.rows {
		switch collection {
		case catalog.LocksCollection, catalog.PingsCollection:
			for _, row := range rows {
				assert.Must(t, w.mem.Put(collection, row.(bson.D)))
			}
		}
		if collection == catalog.LocksCollection {
			continue
		}
		assert.Value(client.Database("test").Collection(collection).InsertMany(t.Context(), rows))(t)
	}
	return w
}

// layoutFaults is a script that lists the layout faults of a page:
//
//   - The page is wider than the screen.
//   - An element exceeds its card.
//   - The letters of a word are below each other.
//   - A mark or a figure is cut.
//   - A text is cut, and no title contains the whole text.
const layoutFaults = `(() => {
	const wrong = [], say = (what, e) => wrong.push(what + ": " + e.tagName + "." +
		(e.getAttribute("class") || "") + " " + e.textContent.trim().slice(0, 60));
	const wide = document.documentElement.scrollWidth;
	if (wide > innerWidth) wrong.push("the page is " + wide + " wide on " + innerWidth);
	const cards = ".card, .figures a, table, .timeline, .events, .problem, .note, .empty, .search, " +
		".scroll, .band .id, header, main";
	for (const e of document.querySelectorAll("body *")) {
		if (e.closest("svg") || e.closest(".skip") || !e.checkVisibility()) continue;
		const r = e.getBoundingClientRect(), scrolls = e.closest(".scroll, nav");
		if (r.width === 0) continue;
		const card = e.parentElement.closest(cards);
		if (card && !(scrolls && scrolls !== e)) {
			const c = card.getBoundingClientRect();
			if (r.left < c.left - 1 || r.right > c.right + 1) say("outside of its card", e);
		}
		if (e.matches("td, bdi, dd, .tag") && r.width < 36 && r.height > 90)
			say("letters are below each other", e);
		const wider = e.scrollWidth > e.clientWidth + 1;
		const cut = getComputedStyle(e).overflowX !== "visible" && !scrolls &&
			(wider || e.scrollHeight > e.clientHeight + 2);
		const marked = e.querySelector(".tag, .num") || e.matches(".tag, .num, input, time");
		if (cut && marked) say("a mark or a figure is cut", e);
		else if (cut && !e.title && (e.matches("td, th") && !e.querySelector("[title]") ||
			e.matches("bdi") && !e.closest("[title]"))) say("a text is cut and nowhere whole", e);
		if (e.matches(".tag, td.num, .pulse")) {
			const around = e.matches("td") ? e : e.closest("td, .card, li, h1, p, div") || e;
			if (r.right > around.getBoundingClientRect().right + 1 || wider)
				say("a mark or a figure is cut", e);
		}
	}
	return wrong.slice(0, 12).join("\n");
})()`

// With long and malformed data, each page is readable at every width. No page scrolls sideways, no
// element exceeds its card, and no mark or figure is cut.
func TestBrowser_UglyData_EveryPageFits(t *testing.T) {
	needsBrowser(t)
	w := ugly(t)
	b := inBrowser(t, w)
	b.do(chromedp.Navigate(b.url + "/lock?name=hot"))
	b.until("it is read", `document.querySelector("a.danger")`)
	href := value[string](b, `document.querySelector("a.danger").getAttribute("href")`)
	for _, path := range []string{
		"/", "/?show=all&sort=name", "/timeline", "/processes", "/elections",
		"/loops", "/queues", "/server", "/lock?name=" + longName, "/lock", href,
		"/lock?name=" + oneWord, "/lock?name=table",
		"/dead?queue=test.invoices_of_all_tenants_that_were_not_sent",
	} {
		b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(b.url+path))
		b.until("it is read",
			`document.querySelector("h1") && !document.body.innerText.includes("Unknown")`)
		value[int](b, `document.querySelectorAll("details").forEach((d) => d.open = true), 0`)
		for _, wide := range []int64{320, 900, 1440, 1920} {
			b.do(chromedp.EmulateViewport(wide, 800))
			if wrong := value[string](b, layoutFaults); wrong != "" {
				t.Errorf("%s at %d:\n%s", path[:min(len(path), 60)], wide, wrong)
			}
		}
	}
	b.checkMessages()

	b.do(chromedp.EmulateViewport(360, 800), chromedp.Navigate(b.url+href))
	b.until("it is asked", `document.querySelector("form.ask")`)
	w.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
		return fmt.Errorf("%s: %w", oneWord, fault.Refused(call.Op))
	})
	b.do(chromedp.SendKeys("[name=why]", "it hangs"), chromedp.Submit("form.ask"))
	b.until("the error is shown", `document.querySelector("p.problem")?.innerText.includes("xxx")`)
	if wrong := value[string](b, layoutFaults); wrong != "" {
		t.Errorf("an error of one long word:\n%s", wrong)
	}
	b.checkMessages("502") // the status of the reply
}
