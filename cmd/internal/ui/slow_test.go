package ui_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/cmd/internal/ui"
	"mongodlm/internal/test/assert"
)

// pipes is a listener with connections in memory, so that their deadlines are in virtual time.
type pipes struct {
	accepted chan net.Conn
	done     chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that sends half of a body blocks nothing for long, on any path. A live page stays live.
func TestPage_HalfABody_IsNotWaitedFor(t *testing.T) {
	const token = "0123456789abcdef"
	inBubble(t, func(c *ui.Config) { c.Tokens = ui.Tokens{token: ""} }, func(t *testing.T, w *world) {
		on := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: w.page} //nolint:gosec // the timeouts of the page itself are tested
		go func() { _ = server.Serve(on) }()
		t.Cleanup(func() { _ = server.Close() })
		begin := func(request string) net.Conn {
			t.Helper()
			ours, theirs := net.Pipe()
			on.accepted <- theirs
			assert.Value(io.WriteString(ours, request))(t)
			t.Cleanup(func() { _ = ours.Close() })
			return ours
		}
		const body = " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\nt"
		authorized := strings.Replace(body, "\r\nContent-Type", "\r\nAuthorization: Bearer "+token+
			"\r\nContent-Type", 1)
		for _, request := range []string{"POST /login" + body, "POST /break?name=x" + authorized,
			"GET /" + authorized} {
			c := begin(request)
			begun := time.Now()
			ended := make(chan struct{})
			go func() { _, _ = io.Copy(io.Discard, c); close(ended) }()
			<-ended
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("%.20q was open for %v", request, took)
			}
		}
		live := begin("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: " +
			"text/event-stream\r\nAuthorization: Bearer " + token + "\r\n\r\n")
		go func() { _, _ = io.Copy(io.Discard, live) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		n := w.store.Total()
		time.Sleep(time.Minute)
		if w.store.Total() == n {
			t.Error("the live page was ended")
		}
	})
}

// The server never lists the files of the page.
func TestStatic_Folder_IsNotListed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for path, code := range map[string]int{"/static/": 404, "/static/app.js": 200,
			"/static/icon.svg": 200, "/static": 404, "/static/..%2f": 404} {
			if rec := w.request(http.MethodGet, path, nil); rec.Code != code ||
				strings.Contains(rec.Body.String(), "<pre>") {
				t.Errorf("%s: %d, want %d\n%s", path, rec.Code, code, rec.Body)
			}
		}
	})
}

// Cautions reports exactly the risks of the configuration.
func TestAccess_Cautions(t *testing.T) {
	t.Parallel()
	open, closed := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "closed")
	for name, mode := range map[string]os.FileMode{open: 0o644, closed: 0o600} {
		assert.Must(t, os.WriteFile(name, []byte("0123456789abcdef"), mode))
	}
	for name, c := range map[string]struct {
		access ui.Access
		breaks bool
		want   string
	}{
		"loopback": {ui.Access{Addr: ui.DefaultAddr}, true, ""},
		"TLS and token": {ui.Access{Addr: ":1", TokenFile: closed, CertFile: "c", KeyFile: "k"}, true,
			""},
		"readable token": {ui.Access{Addr: ui.DefaultAddr, TokenFile: open}, false, "chmod 600"},
		"TLS without a token": {ui.Access{Addr: ":1", CertFile: "c", KeyFile: "k"}, false,
			"may read the whole page"},
		"plain text":           {ui.Access{Addr: ":1", TokenFile: closed}, false, "in plain text: give"},
		"plain text, breaking": {ui.Access{Addr: ":1", TokenFile: closed}, true, "may break locks"},
	} {
		got := strings.Join(c.access.Cautions(c.breaks), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: it says %q, want %q", name, got, c.want)
		}
	}
}
