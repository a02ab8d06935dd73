package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/internal/ui"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// The command "distlock ui" serves the page at the address that it prints. It prints no password,
// and exits after an interrupt.
func TestUI_ShowsThePage_NoPassword(t *testing.T) {
	b := newBase(t)
	b.hold("balancer", 41)
	ask := b.opened()
	for path, text := range map[string]string{"": "doing a balance round",
		"lock?name=balancer": otherProcess, "server": "give or take", "loops": "No loop",
		"queues": "No worker claims"} {
		_, page := ask("GET", "/"+path, nil, "none")
		if !strings.Contains(page, text) || strings.Contains(page, "@127") {
			t.Errorf("%q lacks %q:\n%s", path, text, page)
		}
	}
}

// If a database was never used, the page shows the same text as the command line.
func TestUI_WrongDatabase_SaysThatNothingWasEverLocked(t *testing.T) {
	_, page := newBase(t).opened()("GET", "/", nil, "none")
	if !strings.Contains(page, "nothing was ever locked there") {
		t.Errorf("it does not say so:\n%s", page)
	}
}

// If a request with a token breaks a lock, the history names the owner of the token, and not the
// user that runs "distlock ui".
func TestUI_BreakByAToken_HistoryNamesTheOwner(t *testing.T) {
	b := newBase(t)
	b.hold("job", 41)
	b.token = "0123456789abcdef"
	file := filepath.Join(t.TempDir(), "tokens")
	assert.Must(t, os.WriteFile(file, []byte("alice: "+b.token+"\n"), 0o600))
	t.Run("page", func(t *testing.T) { // ends the page, so that its history is written
		browser := &base{t, b.uri, b.name, b.db, b.token}
		ask := browser.opened("--allow-break", "--token-file", file)
		at := "/break?name=job&fence=41&session=" + b.lock("job").TS.Hex()
		_, page := ask(http.MethodGet, at, nil, "none")
		ticket := ticketIn.FindStringSubmatch(page)
		if ticket == nil {
			t.Fatalf("no form:\n%s", page)
		}
		ask(http.MethodPost, at, url.Values{"ticket": ticket[1:], "why": {"it hangs"}}, "same-origin")
		browser.token = "wrong"
		ask(http.MethodGet, "/", nil, "none")
	})
	b.cli("history", "job").want(t, 0, "broken", " alice@", "it hangs")
}

var ticketIn = regexp.MustCompile(`name="ticket" value="([^"]+)"`)

// opened starts a page and returns a function that sends requests to the page.
func (b *base) opened(
	args ...string) (ask func(method, path string, form url.Values, site string) (int, string)) {
	t := b.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := start(ctx, t,
		b.flags(append([]string{"ui", "--listen", "127.0.0.1:0"}, args...)...)...)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		said := ""
		if b.token == "wrong" { // logged on the standard error, because there is no --log
			said = `"message":"wrong token"`
		}
		await(t, ended).want(t, 0, said)
	})
	awaitText(t, out.String, "/\n")
	return func(method, path string, form url.Values, site string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method,
			strings.TrimSuffix(strings.TrimSpace(out.String()), "/")+path, strings.NewReader(form.Encode()))
		assert.Must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", site)
		if b.token != "" {
			r.Header.Set("Authorization", "Bearer "+b.token)
		}
		answer := assert.Value(transport.RoundTrip(r))(t)
		page, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		assert.Must(t, err)
		return answer.StatusCode, string(page)
	}
}

// dead inserts dead rows with the given ids into a queue.
func (b *base) dead(ids ...any) (queue string) {
	queue = b.name + ".jobs"
	b.insert("locks", bsontest.D("_id", "claim:"+queue+":queue:1", "state", int32(0)))
	for _, id := range ids {
		b.insert("jobs", bsontest.D("_id", id, "claim", bsontest.D("state", "dead",
			"attempts", int64(3), "error", "no <b>route", "errors", bson.A{
				bsontest.D("attempt", int64(2), "process", "host:1:2:ab", "error", "busy")})))
	}
	return queue
}

// The page retries or removes selected dead rows, or all dead rows, after a confirmation that shows
// their number. Only the confirmed rows change. A confirmation works once.
func TestUI_DeadRows_ShownRetriedDiscarded(t *testing.T) {
	b := newBase(t)
	b.insert("locks", bsontest.D("_id", "claim:"+b.name+".a:b:queue:1", "state", int32(0)))
	at := "/dead?queue=" + url.QueryEscape(b.dead(`a"b`, 7, 8, bson.NewObjectID(), "last", "z"))
	ask := b.opened("--allow-break")
	if code, page := ask("GET", "/queues", nil, "none"); code != 200 ||
		!strings.Contains(page, html.EscapeString(at)) ||
		!strings.Contains(page, `title="`+b.name+`.a:b"`) {
		t.Errorf("%d: a queue does not lead to its dead rows:\n%s", code, page)
	}
	if code, _ := ask("GET", "/dead?queue="+b.name+".a:b", nil, "none"); code != 200 {
		t.Errorf("%d: a collection with a colon has no page", code)
	}
	left := 6
	for _, c := range []struct {
		act, question, done string
		ids                 []string
	}{
		{"retry", "Retry 2 rows?", "Done: 2 rows, retry", []string{`"a\"b"`, "7"}},
		{"discard", "Remove the documents of 1 row?", "Done: 1 row, discard", []string{"8"}},
		{"retry-all", "Retry all 3 rows?", "Done: 3 rows, retry-all", nil},
	} {
		_, page := ask("GET", at, nil, "none")
		for _, text := range []string{"attempts", "busy", "host:1", "no &lt;b&gt;route",
			fmt.Sprintf("1 to %d of %d", left, left), fmt.Sprintf("Retry all %d", left)} {
			if !strings.Contains(page, text) {
				t.Errorf("the page lacks %q:\n%s", text, page)
			}
		}
		form := url.Values{"act": {c.act}, "id": c.ids}
		code, page := ask("POST", at, form, "same-origin")
		if found := ticketIn.FindStringSubmatch(page); code == 200 && found != nil &&
			strings.Contains(page, c.question) {
			form.Set("ticket", html.UnescapeString(found[1]))
		} else {
			t.Fatalf("%s: %d: it asks nothing:\n%s", c.act, code, page)
		}
		b.cli("claims", "jobs").want(t, 0, fmt.Sprintf("%d dead", left))
		if code, page := ask("POST", at, form, "same-origin"); code != 200 ||
			!strings.Contains(page, c.done) {
			t.Fatalf("%s: %d\n%s", c.act, code, page)
		}
		if code, _ := ask("POST", at, form, "same-origin"); code != http.StatusConflict {
			t.Errorf("%s again: %d", c.act, code)
		}
		if left -= len(c.ids); c.ids == nil {
			left = 0
		}
	}
	b.cli("claims", "jobs").want(t, 0, "5 ready", "0 dead")
}

// Each dead row is on exactly one page. Each page shows the number of all dead rows.
func TestUI_DeadRows_MoreThanAPage_AreTurned(t *testing.T) {
	b := newBase(t)
	ids := make([]any, 120)
	for i := range ids {
		ids[i] = fmt.Sprintf("row %03d", i)
	}
	at := "/dead?queue=" + url.QueryEscape(b.dead(ids...))
	ask := b.opened()
	var pages strings.Builder
	for _, of := range []string{"1 to 100 of 120", "101 to 120 of 120"} {
		_, page := ask("GET", at, nil, "none")
		if !strings.Contains(page, of) {
			t.Errorf("%s lacks %q:\n%.3000s", at, of, page)
		}
		pages.WriteString(page)
		if next := regexp.MustCompile(`href="([^"]+)" data-hotkey="\]"`).FindStringSubmatch(page); next != nil {
			at = html.UnescapeString(next[1])
		}
	}
	for _, id := range ids {
		if n := strings.Count(pages.String(), fmt.Sprintf("&#34;%s&#34;</bdi>", id)); n != 1 {
			t.Errorf("%s is shown %d times", id, n)
		}
	}
}

// Like the break of a lock, a change of dead rows needs --allow-break and a valid confirmation. The
// page shows only the collections of queues.
func TestUI_DeadRows_WithoutWhatItNeeds_Refused(t *testing.T) {
	b := newBase(t)
	at := "/dead?queue=" + url.QueryEscape(b.dead(1, 2))
	b.insert("secret", bsontest.D("_id", 1, "claim", bsontest.D("state", "dead")))
	secret := "/dead?queue=" + b.name + ".secret"
	form := func(act, ticket string, ids ...string) url.Values {
		return url.Values{"act": {act}, "id": ids, "ticket": {ticket}}
	}
	shows := b.opened()
	if code, page := shows("GET", at, nil, "none"); code != 200 || strings.Contains(page, "<form") {
		t.Errorf("%d\n%s", code, page)
	}
	if code, _ := shows("POST", at, form("retry", "x", "1"), "same-origin"); code != 403 {
		t.Errorf("a page that only shows: %d", code)
	}
	ask := b.opened("--allow-break")
	_, page := ask("POST", at, form("retry", "", "1"), "same-origin")
	ticket := html.UnescapeString(ticketIn.FindStringSubmatch(page)[1])
	for name, c := range map[string]struct {
		method, target, site string
		form                 url.Values
		code                 int
	}{
		"no row":             {"POST", at, "same-origin", form("retry", ""), 400},
		"malformed row":      {"POST", at, "same-origin", form("retry", "", "1", "{x"), 400},
		"no act":             {"POST", at, "same-origin", form("", "", "1"), 400},
		"another act":        {"POST", at, "same-origin", form("drop", ticket, "1"), 400},
		"made up":            {"POST", at, "same-origin", form("retry", "1.00", "1"), 403},
		"of another act":     {"POST", at, "same-origin", form("discard", ticket, "1"), 403},
		"of another row":     {"POST", at, "same-origin", form("retry", ticket, "2"), 403},
		"of one row more":    {"POST", at, "same-origin", form("retry", ticket, "1", "2"), 403},
		"of all":             {"POST", at, "same-origin", form("retry-all", ticket), 403},
		"from another site":  {"POST", at, "cross-site", form("retry", ticket, "1"), 403},
		"another collection": {"GET", secret, "none", nil, 404},
		"no collection":      {"GET", "/dead", "none", nil, 404},
		"another one, for good": {"POST", secret, "same-origin", form("retry", ticket, "1"),
			404},
	} {
		if code, _ := ask(c.method, c.target, c.form, c.site); code != c.code {
			t.Errorf("%s: %d, want %d", name, code, c.code)
		}
	}
	b.cli("claims", "jobs").want(t, 0, "0 ready", "2 dead")
}

// The page shows fractions of a millisecond, so a member's times are not rounded to milliseconds.
func TestReadMember_TimesAreNotRounded(t *testing.T) {
	t.Parallel()
	c := connection{uri: uri}
	m := ui.Member{Host: c.hosts()}
	assert.Must(t, c.readMember(t.Context(), &m))
	if m.RoundTrip <= 0 || m.RoundTrip%time.Millisecond == 0 || m.Kind == "" {
		t.Errorf("the member is %+v", m)
	}
}
