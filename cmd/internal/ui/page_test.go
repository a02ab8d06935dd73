package ui_test

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// paths lists all pages.
var paths = []string{"/", "/?show=all", "/timeline", "/processes", "/elections", "/loops",
	"/queues", "/server", "/lock", "/lock?name=job"}

// Each page and each stream shows a foreign string as text, without executing it. The string may be
// a name, a reason, a process, the kind of a stored event, or a part of the address. In a stream,
// the string cannot end an event.
func TestPage_ForeignTexts_Escaped(t *testing.T) {
	const odd = "odd\r\rdata: <b>\u202e\x1b"
	names := []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "two\nlines", "a\rreturn",
		"\x1b[31mred\x07", "safe\u202egnp.exe", "javascript:alert(1)", "{{.}}", "</title></svg>", " ",
		"a\u0301\u2066x",
	}
	hidden := regexp.MustCompile(` data-k="[^"]*"`)
	inBubble(t, func(c *ui.Config) { c.AllowBreak = true }, func(t *testing.T, w *world) {
		holder, waiter := w.process(), w.process()
		all := append([]string{"/?show=%0D%0Da&sort=%0Db&q=%0D%0Dc"}, paths...)
		for _, name := range names {
			g := w.hold(holder, name, distlock.Why(name), distlock.Label("election"))
			w.wait(t.Context(), waiter, name, distlock.Why(name), distlock.Label("election"))
			q := url.QueryEscape(name)
			all = append(all, "/lock?name="+q, "/?q="+q, "/processes?q="+q, held(g, name))
		}
		ts := bson.NewObjectID()
		w.history.put(history.Entry{ID: ts, At: time.Now(), Kind: odd, Name: "job", Process: odd,
			Previous: odd, Mode: odd})
		assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", "job", "state", int32(1),
			"ts", ts, "process", odd, "who", odd, "why", odd, "fence", int64(1))))
		time.Sleep(2 * time.Second)
		for _, path := range all {
			page := w.get(path)
			if strings.Count(page, "<title>")+strings.Count(page, "<svg")-strings.Count(page, "</svg>") !=
				strings.Count(page, "</title>") {
				t.Errorf("%s: a text has ended an element", path)
			}
			texts := []string{page}
			if !strings.HasPrefix(path, "/break") {
				b := w.open(path, nil)
				time.Sleep(2 * time.Second)
				_, event := b.received()
				b.leave()
				if strings.Count(event, "\n\n") != 1 || !strings.HasSuffix(event, "\n\n") ||
					strings.Contains(event, "\r") {
					t.Errorf("stream of %s: a text has ended the event\n%q", path, event)
				}
				texts = append(texts, event)
			}
			for _, text := range texts {
				lack(t, hidden.ReplaceAllString(text, ""), "<script>alert", "<img src=x", "<b>", "\x1b",
					"\x07", "\u202e", "\u2066", `href="javascript`)
			}
		}
	})
}

// No page contains an inline script or style. The headers forbid inline code, frames and caching.
func TestPage_PolicyAndHeaders_NothingInline(t *testing.T) {
	inline := regexp.MustCompile(
		`(?i)<script(>|[^>]*>[^<])|<style|\s(style|on[a-z]+)=|(src|href)="(https?:)?//`)
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.hold(w.process(), "job")
		for _, path := range append(paths, "/static/app.js", "/static/style.css", "/nothing") {
			rec := w.request(http.MethodGet, path, nil)
			h := rec.Header()
			policy := h.Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
				!strings.Contains(policy, "frame-ancestors 'none'") || h.Get("Cache-Control") != "no-store" ||
				h.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %v", path, h)
			}
			if found := inline.FindString(rec.Body.String()); found != "" &&
				!strings.HasPrefix(path, "/static/") {
				t.Errorf("%s has %q", path, found)
			}
		}
	})
}

// A request with a foreign host name, or from another site, gets no data. This prevents DNS
// rebinding and cross-site requests.
func TestGuard_OtherHostOrSite_Refused(t *testing.T) {
	inBubble(t, func(c *ui.Config) { c.AllowBreak = true }, func(t *testing.T, w *world) {
		w.hold(w.process(), "job")
		for _, c := range []struct {
			name, method string
			host         string
			header       http.Header
			code         int
		}{
			{"loopback by name", "GET", "localhost", nil, 200},
			{"loopback with a port", "GET", "127.0.0.1:8087", nil, 200},
			{"another loopback", "GET", "127.8.8.8:1", nil, 200},
			{"IPv6", "GET", "[::1]:8087", nil, 200},
			{"IPv4 in IPv6", "GET", "[::ffff:127.0.0.1]:8087", nil, 200},
			{"a foreign host name", "GET", "evil.example:8087", nil, 421},
			{"a name that begins alike", "GET", "localhost.evil.example", nil, 421},
			{"an address that begins alike", "GET", "127.0.0.1.evil.example", nil, 421},
			{"no name", "GET", "", nil, 421},
			{"script of another site", "GET", "localhost",
				http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}}, 403},
			{"link on another site", "GET", "localhost",
				http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}, 200},
			{"form of another site", "POST", "localhost",
				http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}, 403},
			{"form of another origin", "POST", "localhost", http.Header{"Origin": {"http://evil.example"}},
				403},
			{"form of another port", "POST", "localhost:1", http.Header{"Origin": {"http://localhost:2"}},
				403},
		} {
			target := "/"
			if c.method == "POST" {
				target = "/break?name=job"
			}
			rec := w.request(c.method, target, func(r *http.Request) {
				r.Host = c.host
				if c.header != nil {
					r.Header = c.header
				}
			})
			if rec.Code != c.code {
				t.Errorf("%s: %d, want %d", c.name, rec.Code, c.code)
			}
			if c.code != 200 {
				lack(t, rec.Body.String(), "job")
			}
		}
	})
}

// If the page has tokens, a browser without a token gets no data. A cookie is invalid after a
// restart of the page.
func TestGuard_Token_AskedOfEveryBrowser(t *testing.T) {
	const token = "0123456789abcdef"
	inBubble(t,
		func(c *ui.Config) { c.Tokens, c.Loopback, c.Secure = ui.Tokens{token: ""}, false, true },
		func(t *testing.T, w *world) {
			w.hold(w.process(), "job")
			with := func(key, value string) func(*http.Request) {
				return func(r *http.Request) { r.Header.Set(key, value) }
			}
			for name, change := range map[string]func(*http.Request){
				"none": nil, "wrong": with("Authorization", "Bearer 0123456789abcdeF"),
				"empty":                    with("Authorization", "Bearer "),
				"cookie that is the token": with("Cookie", "distlock_ui="+token),
				"stream":                   with("Accept", "text/event-stream"),
			} {
				for _, path := range append(paths, "/break?name=job", "/nothing") {
					rec := w.request("GET", path, change)
					// The login form repeats the requested address.
					body := strings.Replace(rec.Body.String(), template.HTMLEscapeString(path), "", 1)
					if rec.Code != http.StatusUnauthorized || strings.Contains(body, "job") ||
						strings.Contains(body, token) {
						t.Errorf("%s, %s: %d\n%s", name, path, rec.Code, body)
					}
				}
			}
			if rec := w.request("GET", "/", with("Authorization", "Bearer "+token)); rec.Code != 200 {
				t.Errorf("with the token: %d", rec.Code)
			}
			if rec := w.login("wrong"); rec.Code != http.StatusUnauthorized ||
				len(rec.Result().Cookies()) != 0 {
				t.Errorf("login with another one: %d", rec.Code)
			}
			rec := w.login(token)
			cookies := rec.Result().Cookies()
			if rec.Code != http.StatusSeeOther || len(cookies) != 1 {
				t.Fatalf("login: %d, %v", rec.Code, cookies)
			}
			c := cookies[0]
			if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode ||
				strings.Contains(c.Value, token) {
				t.Errorf("cookie %v", c)
			}
			if rec := w.request("GET", "/", func(r *http.Request) { r.AddCookie(c) }); rec.Code != 200 {
				t.Errorf("with the cookie: %d", rec.Code)
			}
			other := newWorld(t, func(c *ui.Config) { c.Tokens = ui.Tokens{token: ""} })
			if rec := other.request("GET", "/", func(r *http.Request) { r.AddCookie(c) }); rec.Code != 401 {
				t.Errorf("with a cookie of another start: %d", rec.Code)
			}
		})
}

// With more than 10,000 locks, each page has a bounded size and reports that it omits locks. The
// search and the page of a lock still find each lock.
func TestPage_TenThousandLocks_Bounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for i := range 10_100 {
			err := w.mem.Put(catalog.LocksCollection, bsontest.D("_id", fmt.Sprintf("lock %05d", i),
				"state", int32(2), "ts", bson.NewObjectID(), "process", "h:1:2:x", "fence", int64(i)))
			assert.Must(t, err)
		}
		for _, path := range []string{"/", "/?from=9999999", "/?from=-1",
			"/timeline?span=7d", "/processes"} {
			page := w.get(path)
			if n := strings.Count(page, "<tr data-k"); len(page) > 500<<10 || n > 200 {
				t.Errorf("%s: %d bytes, %d rows", path, len(page), n)
			}
			want(t, page, "The database has more locks than this page keeps")
		}
		want(t, w.get("/?q=09999"), "lock 09999", "1 to 1 of 1<")
		page := w.get("/lock?name=lock+10099")
		want(t, page, "lock 10099", "Held by")
	})
}

// Long names of locks and long process ids remain different in the rows and sentences of the page,
// even if they differ only at the end.
func TestPage_LongNamesDifferAtTheEnd_RemainDifferent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		long := strings.Repeat("x", 253)
		for _, end := range []string{"-a", "-b"} {
			process := long + end + ":7:1700000000:u"
			assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", long+end, "state", int32(2),
				"ts", bson.NewObjectID(), "process", process, "who", process+":x",
				"when", bson.NewDateTimeFromTime(time.Now()), "why", "")))
			w.history.put(history.Entry{ID: bson.NewObjectID(), At: time.Now(), Kind: "released",
				Name: "old", Process: process})
		}
		page := w.get("/")
		want(t, page, "xx-a</bdi>", "xx-b</bdi>", "xx-a:7</bdi>", "xx-b:7</bdi>")
		want(t, w.get("/lock?name=old"), "xx-a:7 released", "xx-b:7 released")
	})
}

// The page shows the holder with its reason and the time since its acquisition, the waiters, the
// processes and the leaders.
func TestPage_ShowsHoldersAndWaiters(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		g := w.hold(a, "job", distlock.Why("nightly report"))
		w.wait(t.Context(), b, "job", distlock.Why("me too"))
		w.hold(b, "crown", distlock.Label("election"), distlock.Why("10.0.0.1:80"))
		time.Sleep(90 * time.Second)
		want(t, w.get("/"), "nightly report", "1m30s", fmt.Sprint(g.Fence()),
			url.QueryEscape(a.Process()))
		want(t, w.get("/lock?name=job"), "nightly report", "me too", g.Session().Hex(), b.Process())
		want(t, w.get("/processes"), a.Process(), b.Process(), "waits for")
		page := w.get("/elections")
		want(t, page, "crown", "10.0.0.1:80")
		lack(t, page, "job")
		want(t, w.get("/lock?name=nothing"), "There is no such lock")
		want(t, w.get("/?q=REPORT"), "1 to 1 of 1<")
		want(t, w.get("/?q=zebra"), "No lock matches")
	})
}

// The page shows a dead holder as silent. It shows the takeover of the lock, and the eviction with
// its evidence. A waiter that was evicted has no bar.
func TestPage_Takeover_Shown(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		dead, session := "host:1:2:dead", bson.NewObjectID()
		w.history.put(
			history.Entry{At: time.Now(), Kind: "acquired", Name: "job", Process: dead, Session: session},
			history.Entry{At: time.Now(), Kind: "evicted", Name: "job", Previous: "host:3:4:waiter",
				Session: bson.NewObjectID()})
		_ = w.mem.Put(catalog.PingsCollection, ping(dead, 0))
		_ = w.mem.Put(catalog.LocksCollection, bsontest.D("_id", "job", "state", int32(1),
			"ts", session, "process", dead, "fence", int64(7),
			"when", bson.NewDateTimeFromTime(time.Now()), "takeoverMS", takeoverTime.Milliseconds()))
		time.Sleep(takeoverTime + time.Second)
		want(t, w.get("/?show=silent"), "job", "silent", "1 to 1 of 1<")
		w.wait(t.Context(), w.process(), "job", distlock.Why("instead"))
		time.Sleep(2 * takeoverTime)
		page := w.get("/lock?name=job&span=5m")
		want(t, page, "instead", ">taken over<", `<path class="mark take" d="M-5`, dead, "evidence",
			" took it over from host:1: ", "<bdi>host:1 was evicted by ", ": it was silent for the takeover time")
		lack(t, page, "end is not known")
		assert.Equal(t, strings.Count(page, `class="bar`), 2, "%d bars, want %d of the two holders")
		want(t, w.get("/timeline"), "job", `class="bar`)
	})
}

// The page shows the events and holdings of the history, and the present holder even without a
// history. If no history is recorded or it cannot be read, the page says so.
func TestPage_History(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		session := bson.NewObjectID()
		w.foreign("chunk", session)
		const none = "No history is recorded: programs record it with a history.Log as Config.Observer."
		for _, path := range []string{"/timeline", "/lock?name=chunk"} {
			page := w.get(path)
			want(t, page, none)
			assert.Equal(t, strings.Count(page, `class="bar`), 1, "%d bars of the holder, want %d")
		}
		m := w.process()
		g := w.hold(m, "job", distlock.Why("unseen work"))
		time.Sleep(5 * time.Second)
		_ = g.Release()
		time.Sleep(time.Minute)
		page := w.get("/lock?name=job")
		want(t, page, "unseen work", `<span class="tag line">acquired</span>`,
			`<span class="tag ">released</span>`, "after 5s")
		lack(t, page, none)
		g = w.hold(m, "job", distlock.Why("seen work"))
		time.Sleep(10 * time.Second)
		page = w.get("/lock?name=job")
		for _, text := range []string{">acquired<", `class="bar`} {
			assert.Equal(t, strings.Count(page, text), 2, text+": %d, one past and one present, want %d")
		}
		lack(t, page, "end is not known")
		action, ticket := w.ask(held(g, "job"))
		w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"by hand"}}))
		time.Sleep(10 * time.Second)
		page = w.get("/lock?name=job")
		want(t, page, "by hand", `<path class="mark broke" d="M-4`, ">lost<")
		lack(t, page, "end is not known")
		for text, n := range map[string]int{">broken<": 1, ">acquired<": 2, `class="bar`: 2} {
			assert.Equal(t, strings.Count(page, text), n, text+": %d, want %d")
		}
		w.history.fail(distlock.ErrUnavailable)
		time.Sleep(10 * time.Second)
		want(t, w.get("/lock?name=job"), "as of ", "unavailable", ">broken<")
		lack(t, w.get("/lock?name=other"), none)
	})
}

func (w *world) login(token string) *recorder {
	w.t.Helper()
	return w.request(http.MethodPost, "/login", form(url.Values{"token": {token}}))
}
