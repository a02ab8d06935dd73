package main

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

var deadForms = regexp.MustCompile(
	`action="(/dead[^"]+)"><input type="hidden" name="ticket" value="([^"]+)"`)

// opened is a page, and how to ask it.
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
		await(t, ended).want(t, 0)
	})
	says(t, out.String, "/\n")
	return func(method, path string, form url.Values, site string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method,
			strings.TrimSuffix(strings.TrimSpace(out.String()), "/")+path, strings.NewReader(form.Encode()))
		assert.Must(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", site)
		answer := assert.Value(transport.RoundTrip(r))(t)
		page, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		assert.Must(t, err)
		return answer.StatusCode, string(page)
	}
}

// dead adds rows of a queue that are.
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

// The dead rows of a queue are shown with their errors; one button retries a row, one removes it,
// and one retries all.
func TestUI_DeadRows_ShownRetriedDiscarded(t *testing.T) {
	b := newBase(t)
	at := "/dead?queue=" + url.QueryEscape(b.dead(`a"b`, 7, bson.NewObjectID(), "last"))
	ask := b.opened("--allow-break")
	if code, page := ask("GET", "/queues", nil, "none"); code != 200 ||
		!strings.Contains(page, html.EscapeString(at)) {
		t.Errorf("%d: the queue does not lead to its dead rows:\n%s", code, page)
	}
	for i, want := range []string{"retry", "discard", "retry"} {
		_, page := ask("GET", at, nil, "none")
		for _, text := range []string{"attempts", "busy", "host:1", "no &lt;b&gt;route"} {
			if !strings.Contains(page, text) {
				t.Errorf("the page lacks %q:\n%s", text, page)
			}
		}
		forms := deadForms.FindAllStringSubmatch(page, -1)
		if len(forms) != 1+2*(4-i) { // of all, and two of each row
			t.Fatalf("%d forms:\n%s", len(forms), page)
		}
		form := forms[1]
		if want == "discard" {
			form = forms[2]
		}
		action, ticket := html.UnescapeString(form[1]), html.UnescapeString(form[2])
		if code, page := ask("POST", action, url.Values{"ticket": {ticket}},
			"same-origin"); code != 200 || !strings.Contains(page, "Done: 1 rows, "+want) {
			t.Fatalf("%s: %d\n%s", want, code, page)
		}
		if code, _ := ask("POST", action, url.Values{"ticket": {ticket}},
			"same-origin"); code != http.StatusConflict {
			t.Errorf("again: %d", code)
		}
	}
	b.cli("claims", "jobs").want(t, 0, "2 ready", "1 dead")
	_, page := ask("GET", at, nil, "none")
	all := deadForms.FindStringSubmatch(page)
	if code, page := ask("POST", html.UnescapeString(all[1]),
		url.Values{"ticket": {html.UnescapeString(all[2])}}, "same-origin"); code != 200 ||
		!strings.Contains(page, "No row is dead") {
		t.Errorf("%d\n%s", code, page)
	}
}

// It tries to break: every change has the requirements of a break, and only the collection of a
// queue is shown.
func TestUI_DeadRows_WithoutWhatItNeeds_Refused(t *testing.T) {
	b := newBase(t)
	queue := b.dead(1, 2)
	b.insert("secret", bsontest.D("_id", 1, "claim", bsontest.D("state", "dead")))
	at := "/dead?queue=" + url.QueryEscape(queue)
	shows := b.opened()
	if code, page := shows("GET", at, nil, "none"); code != 200 || strings.Contains(page, "<form") {
		t.Errorf("%d\n%s", code, page)
	}
	if code, _ := shows("POST", at+"&act=retry&id=1", url.Values{"ticket": {"x"}},
		"same-origin"); code != 403 {
		t.Errorf("a page that only shows: %d", code)
	}
	ask := b.opened("--allow-break")
	_, page := ask("GET", at, nil, "none")
	forms := deadForms.FindAllStringSubmatch(page, -1)
	action, ticket := html.UnescapeString(forms[1][1]), html.UnescapeString(forms[1][2])
	for name, c := range map[string]struct {
		method, target, ticket, site string
		code                         int
	}{
		"no ticket": {"POST", action, "", "same-origin", 403},
		"made up":   {"POST", action, "1.00", "same-origin", 403},
		"of another act": {"POST", strings.Replace(action, "retry", "discard", 1), ticket, "same-origin",
			403},
		"of another row": {"POST", strings.Replace(action, "id=1", "id=2", 1), ticket, "same-origin",
			403},
		"from another site":  {"POST", action, ticket, "cross-site", 403},
		"another collection": {"GET", "/dead?queue=" + b.name + ".secret", "", "none", 404},
		"no collection":      {"GET", "/dead", "", "none", 404},
		"another one, for good": {"POST", "/dead?queue=" + b.name + ".secret&act=retry&id=1", ticket,
			"same-origin", 404},
	} {
		if code, _ := ask(c.method, c.target, url.Values{"ticket": {c.ticket}}, c.site); code != c.code {
			t.Errorf("%s: %d, want %d", name, code, c.code)
		}
	}
	b.cli("claims", "jobs").want(t, 0, "0 ready", "2 dead")
}
