package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
)

// The command serves the page at the address that it prints. It prints no password, and ends on an
// interrupt.
func TestUI_ShowsThePage_NoPassword(t *testing.T) {
	b := newBase(t)
	b.hold("balancer", 41)
	ask := b.opened()
	for path, text := range map[string]string{"": "doing a balance round",
		"lock?name=balancer": stranger, "server": "standalone", "loops": "No loop",
		"queues": "No worker claims"} {
		_, page := ask("GET", "/"+path, nil, "none")
		if !strings.Contains(page, text) || strings.Contains(page, "@127") {
			t.Errorf("%q lacks %q:\n%s", path, text, page)
		}
	}
}

// For a misspelt database the page shows the same text as the command line.
func TestUI_WrongDatabase_SaysThatNothingWasEverLocked(t *testing.T) {
	_, page := newBase(t).opened()("GET", "/", nil, "none")
	if !strings.Contains(page, "nothing was ever locked there") {
		t.Errorf("it does not say so:\n%s", page)
	}
}

// If the page breaks a lock by a token, the history names the token's owner and not the user that
// started the page.
func TestUI_BreakByAToken_HistoryTellsWhose(t *testing.T) {
	b := newBase(t)
	b.hold("job", 41)
	file := filepath.Join(t.TempDir(), "tokens")
	assert.Must(t, os.WriteFile(file, []byte("alice: 0123456789abcdef\n"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, ended := start(ctx, t,
		b.flags("ui", "--listen", "127.0.0.1:0", "--allow-break", "--token-file", file)...)
	says(t, out.String, "/\n")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	at := strings.TrimSpace(out.String()) + "break?name=job&fence=41&session=" + b.lock("job").TS.Hex()
	ask := func(method string, form url.Values) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(form.Encode()))
		assert.Must(t, err)
		r.Header.Set("Authorization", "Bearer 0123456789abcdef")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := assert.Value(transport.RoundTrip(r))(t)
		defer answer.Body.Close()
		page, _ := io.ReadAll(answer.Body)
		return string(page)
	}
	page := ask(http.MethodGet, nil)
	ticket := regexp.MustCompile(`name="ticket" value="([^"]+)"`).FindStringSubmatch(page)
	if ticket == nil {
		t.Fatalf("no form:\n%s", page)
	}
	ask(http.MethodPost, url.Values{"ticket": ticket[1:], "why": {"it hangs"}})
	cancel()
	await(t, ended).want(t, 0)
	b.cli("history", "job").want(t, 0, "broken", " alice@", "it hangs")
}
