package ui_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/cmd/internal/ui"
	"mongodlm/configserver"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/fault"
)

// If the outcome of a break is unknown, the page says so. If nothing was changed, the form keeps
// the typed reason.
func TestBreak_Fails_TheOutcomeIsShownAsKnownOrUnknown(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			hook       fault.Hook
			want, lack string
		}{
			"lost":    {fault.Losing(fault.Break), "The lock may or may not be broken now", "Nothing was changed"},
			"refused": {fault.Refusing(fault.Break), `value="it hangs"`, "may or may not"},
		} {
			g := w.hold(w.process(), name)
			action, ticket := w.ask(held(g, name))
			w.store.Set(c.hook)
			rec := w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"it hangs"}}))
			w.store.Set(nil)
			assert.Equal(t, rec.Code, http.StatusBadGateway, name+": %d, want %d")
			want(t, rec.Body.String(), c.want)
			lack(t, rec.Body.String(), c.lack, "is free now")
		}
	})
}

// If the lock has other holders, a break removes only the selected holder.
func TestBreak_OneOfSeveral_OthersRemain(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		a := w.hold(w.process(), "table", distlock.Shared())
		b := w.hold(w.process(), "table", distlock.Shared())
		action, ticket := w.ask(held(a, "table"))
		rec := w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"x"}}))
		want(t, rec.Body.String(), "other holders still hold it")
		lock := assert.Value(w.mem.Read(t.Context(), "table"))(t)
		if len(lock.Holders()) != 1 || lock.TS != b.Session() {
			t.Errorf("the lock is %+v", lock)
		}
	})
}

// A browser that leaves does not interrupt a break.
func TestBreak_BrowserLeaves_IsCarriedOut(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		g := w.hold(w.process(), "job")
		action, ticket := w.ask(held(g, "job"))
		ctx, leave := context.WithCancel(t.Context())
		w.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Break {
				leave()
				return errors.Join(ctx.Err(), apply())
			}
			return apply()
		})
		rec := w.request("POST", action, func(r *http.Request) {
			form(url.Values{"ticket": {ticket}, "why": {"x"}})(r)
			*r = *r.WithContext(ctx)
		})
		want(t, rec.Body.String(), "The lock is free now")
	})
}

// The log names the owner of the token who broke a lock. A wrong token is not in the log.
func TestBreak_Log_NamesTheOwnerAndNoToken(t *testing.T) {
	const token = "0123456789abcdef"
	var log bytes.Buffer
	inBubble(t, func(c *ui.Config) {
		c.AllowBreak, c.Tokens, c.Logger = true, ui.Tokens{token: "alice"}, zerolog.New(&log)
	}, func(t *testing.T, w *world) {
		bearer := func(token string, more func(*http.Request)) func(*http.Request) {
			return func(r *http.Request) {
				if more != nil {
					more(r)
				}
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}
		g := w.hold(w.process(), "job")
		w.request("GET", "/", bearer("a wrong token", nil))
		page := w.request("GET", held(g, "job"), bearer(token, nil)).Body.String()
		ticket := html.UnescapeString(ticketOf.FindStringSubmatch(page)[1])
		w.request("POST", held(g, "job"), bearer(token, form(url.Values{"ticket": {ticket}, "why": {"x"}})))
		text := log.String()
		for _, part := range []string{`"wrong token"`, `"the page broke a lock"`, `"by":"alice"`, `"lock":"job"`,
			fmt.Sprintf(`"fence":%d`, g.Fence())} {
			if !strings.Contains(text, part) {
				t.Errorf("the log lacks %s:\n%s", part, text)
			}
		}
		if strings.Contains(text, token) || strings.Contains(text, "a wrong token") {
			t.Errorf("the log has a token:\n%s", text)
		}
	})
}

// The page reads at most 16 KiB of a form. The headers of every page forbid frames and other sites.
func TestGuard_FormAndHeaders(t *testing.T) {
	inBubble(t, breaks, func(t *testing.T, w *world) {
		g := w.hold(w.process(), "job")
		action, ticket := w.ask(held(g, "job"))
		rec := w.request("POST", action, form(url.Values{"ticket": {ticket}, "why": {"x"},
			"more": {strings.Repeat("x", 16<<10)}}))
		assert.Equal(t, rec.Code, http.StatusBadRequest, "a longer form: %d, want %d")
		assert.NoErr(t, g.Err())
		for name, value := range map[string]string{"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if got := rec.Header().Get(name); got != value {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
	})
}

// changed returns a world with the queues a and b. Each has dead rows with the _id 1. The function
// started is called before each command of the page.
func changed(t *testing.T, log *bytes.Buffer, started func(*event.CommandStartedEvent)) *world {
	t.Helper()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	t.Cleanup(func() { _ = server.Close(context.Background()) })
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(server.URI()).SetMonitor(
		&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if started != nil {
				started(e)
			}
		}})))(t)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	w := newWorld(t, func(c *ui.Config) {
		c.AllowBreak, c.Client, c.Interval, c.Logger = true, client, ui.MinInterval, zerolog.New(log)
	})
	m := w.process()
	for name, rows := range map[string]int{"a": 2, "b": 1} {
		w.hold(m, "claim:test."+name+":queue:1")
		for id := range rows {
			assert.Value(client.Database("test").Collection(name).InsertOne(t.Context(),
				bsontest.D("_id", int32(id+1), "claim", bsontest.D("state", "dead"))))(t)
		}
	}
	return w
}

// A confirmation to change dead rows is valid for its queue only. The log names the change. A
// browser that leaves does not interrupt the change.
func TestDead_ConfirmationAndLog(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	leave := func() {}
	w := changed(t, &log, func(e *event.CommandStartedEvent) {
		if e.CommandName == "update" || e.CommandName == "findAndModify" || e.CommandName == "bulkWrite" {
			leave()
		}
	})
	post := func(ctx context.Context, queue string, values url.Values) *httptest.ResponseRecorder {
		return w.request("POST", "/dead?queue="+queue, func(r *http.Request) {
			form(values)(r)
			*r = *r.WithContext(ctx)
		})
	}
	values := url.Values{"act": {"retry"}, "id": {"1"}}
	page := post(t.Context(), "test.a", values).Body.String()
	want(t, page, "<strong>Retry 1 row?")
	values.Set("ticket", html.UnescapeString(ticketOf.FindStringSubmatch(page)[1]))
	assert.Equal(t, post(t.Context(), "test.b", values).Code, http.StatusForbidden, "another queue: %d, want %d")
	if strings.Contains(log.String(), "changed dead rows") {
		t.Errorf("the log says\n%s", log.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	leave = cancel
	want(t, post(ctx, "test.a", values).Body.String(), "Done: 1 row, retry")
	for _, part := range []string{`"the page changed dead rows"`, `"queue":"test.a"`, `"act":"retry"`, `"ids":"1"`,
		`"rows":1`} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log lacks %s:\n%s", part, log.String())
		}
	}
}

// The card of the dead rows counts the rows of all queues. The page counts them once in 15 seconds,
// and reads the locks once an interval.
func TestPage_DeadRowsOfSeveralQueues_AreCountedOnce(t *testing.T) {
	t.Parallel()
	counts := 0
	w := changed(t, &bytes.Buffer{}, func(e *event.CommandStartedEvent) {
		if name, is := e.Command.Lookup(e.CommandName).StringValueOK(); is && (name == "a" || name == "b") &&
			e.CommandName != "insert" {
			counts++
		}
	})
	for begun := time.Now(); w.store.Count(fault.List) < 3; {
		want(t, w.get("/"), "Dead rows</span><strong>3<")
		if t.Failed() || time.Since(begun) > 14*time.Second { // less than keepDead
			t.FailNow()
		}
	}
	assert.Equal(t, counts, 2, "%d counts of two queues, want %d")
}
