package ui_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

type recorder = httptest.ResponseRecorder

// form returns a function that adds the given values to a request as a submitted form.
func form(values url.Values) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Body = io.NopCloser(strings.NewReader(values.Encode()))
	}
}

func breaks(c *ui.Config) { c.AllowBreak = true }

// held returns the address of the form that breaks the lock of a guard.
func held(g *distlock.TryGuard, name string) string {
	return fmt.Sprintf("/break?name=%s&fence=%d&session=%s", url.QueryEscape(name), g.Fence(),
		g.Session().Hex())
}

var (
	ticketOf = regexp.MustCompile(`name="ticket" value="([^"]+)"`)
	actionOf = regexp.MustCompile(`action="(/break[^"]+)"`)
)

// ask opens the form that breaks a lock. It returns the target and the ticket of the form.
func (w *world) ask(target string) (action, ticket string) {
	w.t.Helper()
	page := w.get(target)
	a, k := actionOf.FindStringSubmatch(page), ticketOf.FindStringSubmatch(page)
	if a == nil || k == nil {
		w.t.Fatalf("no form:\n%s", page)
	}
	return html.UnescapeString(a[1]), html.UnescapeString(k[1])
}

// If the next waiter is dead, the page marks it before the user breaks the lock.
func TestBreak_NextIsDead_IsSaid(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		session := bson.NewObjectID()
		at := bson.NewDateTimeFromTime(time.Now())
		for id, mark := range map[string]bson.D{"host:1:1:alive": nil, "host:2:1:dead": bsontest.D(
			"condemned", bsontest.D("by", "x", "evidence", "y"))} {
			_ = w.mem.Put(catalog.PingsCollection, append(ping(id, 0), mark...))
			_ = w.mem.Put(catalog.LocksCollection, bsontest.D("_id", id,
				"state", int32(1), "ts", session, "process", "host:1:1:alive", "fence", int64(7), "when", at,
				"waiters", bson.A{bsontest.D("ts", bson.NewObjectID(), "process", id, "since", at)}))
		}
		address := func(name string) string {
			return fmt.Sprintf("/break?name=%s&fence=7&session=%s", url.QueryEscape(name), session.Hex())
		}
		want(t, w.get(address("host:2:1:dead")), ">condemned<")
		lack(t, w.get(address("host:1:1:alive")), ">condemned<")
	})
}

// Opening the form does not break the lock. Submitting the form breaks the lock, even if the name
// of the lock has special characters.
func TestBreak_TwoSteps_Frees(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		m := w.process()
		for _, name := range []string{"job", "two\r\nlines", `"&<x>?#%`} {
			g := w.hold(m, name, distlock.Why("stuck work"))
			want(t, w.get("/lock?name="+url.QueryEscape(name)), "Break…")
			action, ticket := w.ask(held(g, name))
			time.Sleep(2 * time.Second)
			assert.Must(t, g.Err(), "broken by looking")
			rec := w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"it hangs"}}))
			if rec.Code != 200 {
				t.Errorf("%q: %d", name, rec.Code)
			}
			want(t, rec.Body.String(), "The lock is free now")
			lock, err := w.mem.Read(t.Context(), name)
			if err != nil || lock.Held || lock.Why != "broken: it hangs" {
				t.Errorf("%q: %+v, %v", name, lock, err)
			}
		}
	})
}

// If two pages break a lock at the same time, one succeeds. The other page reports that nothing was
// changed, and the next holder keeps the lock.
func TestBreak_TwoPagesAtOnce_OneWins(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		g := w.hold(w.process(), "job")
		w.wait(t.Context(), w.process(), "job", distlock.Why("next"))
		time.Sleep(time.Second)
		first, ticket := w.ask(held(g, "job"))
		second, other := w.ask(held(g, "job"))
		rec := w.request("POST", first, form(url.Values{"ticket": {ticket}, "why": {"one"}}))
		want(t, rec.Body.String(), "granted to the next waiter")
		// The second form is older than the next holder, so it must not evict that holder.
		rec = w.request("POST", second, form(url.Values{"ticket": {other}, "why": {"two"}}))
		assert.Equal(t, rec.Code, http.StatusConflict, "the second: %d, want %d")
		want(t, rec.Body.String(), "Nothing was changed")
	})
}

// MongoDB's own lock manager does not raise the fence, so two of its holders can have the same
// fence. Breaking such a lock succeeds only with the session of the present holder.
func TestBreak_ForeignHolder_NeedsItsSession(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		foreign := func() string {
			session := bson.NewObjectID()
			assert.Must(t, w.mem.Put(catalog.LocksCollection, bsontest.D("_id", "job", "state", int32(2),
				"ts", session, "process", "mongos", "fence", int64(5))))
			return "/break?name=job&fence=5&session=" + session.Hex()
		}
		action, ticket := w.ask(foreign())
		now := foreign()
		rec := w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"x"}}))
		if lock, err := w.mem.Read(t.Context(), "job"); err != nil || !lock.Held ||
			rec.Code != http.StatusConflict {
			t.Errorf("%d, %+v, %v", rec.Code, lock, err)
		}
		action, ticket = w.ask(now)
		rec = w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"x"}}))
		if lock, err := w.mem.Read(t.Context(), "job"); err != nil || lock.Held || rec.Code != 200 {
			t.Errorf("%d, %+v, %v", rec.Code, lock, err)
		}
	})
}

// Without a valid ticket for this lock, or without a reason, a request breaks no lock.
func TestBreak_WithoutWhatItNeeds_Refused(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		m := w.process()
		g, h := w.hold(m, "job"), w.hold(m, "other")
		action, ticket := w.ask(held(g, "job"))
		why := "because"
		for _, c := range []struct {
			name, target, ticket, why string
			code                      int
		}{
			{"no ticket", action, "", why, 403},
			{"a ticket that was made up", action, "1.00", why, 403},
			{"the ticket of another lock", held(h, "other"), ticket, why, 403},
			{"another fence", strings.Replace(action, fmt.Sprint(g.Fence()), fmt.Sprint(g.Fence()+1), 1),
				ticket, why, 403},
			{"no session", "/break?name=job&fence=" + fmt.Sprint(g.Fence()), ticket, why, 400},
			{"no fence", "/break?name=job", ticket, why, 400},
			{"no reason", action, ticket, "", 400},
			{"a reason that is too long", action, ticket, strings.Repeat("x", 2000), 400},
		} {
			rec := w.request("POST", c.target, form(url.Values{"ticket": {c.ticket}, "why": {c.why}}))
			if rec.Code != c.code {
				t.Errorf("%s: %d, want %d\n%s", c.name, rec.Code, c.code, rec.Body)
			}
		}
		if rec := w.request("POST", action,
			form(url.Values{"ticket": {ticket}, "why": {strings.Repeat("x", 1<<20)}})); rec.Code != 400 {
			t.Errorf("a form of a megabyte: %d", rec.Code)
		}
		time.Sleep(11 * time.Minute)
		if rec := w.request("POST", action,
			form(url.Values{"ticket": {ticket}, "why": {why}})); rec.Code != 403 {
			t.Errorf("an old ticket: %d", rec.Code)
		}
		if g.Err() != nil || h.Err() != nil {
			t.Errorf("broken: %v, %v", g.Err(), h.Err())
		}
	})
}

// A read-only page breaks no lock and offers no break.
func TestBreak_NotAllowed_Refused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		g := w.hold(w.process(), "job")
		lack(t, w.get("/lock?name=job"), "Break…")
		for _, method := range []string{"GET", "POST"} {
			rec := w.request(method, held(g, "job"), form(url.Values{"ticket": {"x"}, "why": {"x"}}))
			if rec.Code != http.StatusForbidden {
				t.Errorf("%s: %d", method, rec.Code)
			}
			want(t, rec.Body.String(), "--allow-break")
		}
	})
}
