package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// It tries to break: the command shows the page at the address that it prints, tells no password
// there, and ends when it is interrupted.
func TestUI_ShowsThePage_NoPassword(t *testing.T) {
	b := newBase(t)
	b.hold("balancer", 41)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, ended := start(ctx, t, "ui", "--listen", "127.0.0.1:0", "--database", b.name,
		"--uri", b.uri)
	eventually(t, "the address is printed", func() bool { return strings.Contains(out.String(), "/\n") })
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for path, text := range map[string]string{"": "doing a balance round", "lock?name=balancer": stranger, "server": "standalone",
		"loops": "No loop", "queues": "Nobody claims"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(out.String())+path,
			http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || !strings.Contains(string(page), text) || strings.Contains(string(page), "@127") {
			t.Errorf("%q lacks %q: %v\n%s", path, text, err, page)
		}
	}
	cancel()
	if r := await(t, ended); r.code != 0 {
		t.Errorf("ended with %d: %s", r.code, r.errOut)
	}
}

// It tries to break: what would show the locks to others is a wrong call, and says what is to be
// done.
func TestUI_WrongCall_SaysTheRemedy(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"--token-file": {"--listen", ":8087"},
		"go together":  {"--tls-key", "k"},
		"at least":     {"--interval", "1ms"},
		"unexpected":   {"extra"},
	} {
		cli(t, append([]string{"ui", "--uri", "mongodb://localhost"}, args...)...).want(t, exitUsage,
			text)
	}
}
