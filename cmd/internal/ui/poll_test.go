package ui_test

import (
	"context"
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
	"mongodlm/internal/test/fault"
)

// The page reads the locks once an interval, for any number of browsers, and never without a
// browser.
func TestPoll_HundredBrowsers_OneRoundAnInterval_NoneWithoutAViewer(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		time.Sleep(time.Hour)
		assert.MustEqual(t, w.store.Total(), 0, "%d commands before anybody looked, want %d")
		var all []*browser
		for i := range 100 {
			all = append(all, w.open([]string{"/", "/processes", "/timeline", "/lock?name=x"}[i%4], nil))
		}
		const rounds = 30
		time.Sleep(rounds * time.Second)
		synctest.Wait()
		// A round sends two commands, for the holders and for the waiters. Every three seconds the page
		// reads two histories, of all locks and of one lock.
		past := w.history.count()
		if n := w.store.Total(); n < 2*(rounds-1) || n > 2*(rounds+2) {
			t.Errorf("%d commands in %d intervals, want two an interval", n, rounds)
		}
		if past > 2*(rounds/3+2) {
			t.Errorf("the history was read %d times in %d seconds by 50 browsers", past, rounds)
		}
		for i, b := range all {
			if n, _ := b.received(); n < rounds-1 || n > rounds+2 {
				t.Errorf("browser %d was sent %d events in %d intervals", i, n, rounds)
			}
			b.leave()
		}
		time.Sleep(2 * time.Second)
		n := w.store.Total()
		time.Sleep(time.Hour)
		if now := w.store.Total(); now != n {
			t.Errorf("%d commands without a viewer", now-n)
		}
	})
}

// A browser that does not read delays no other browser, and the page keeps no data for it. When the
// browser reads again, it gets the present data.
func TestStream_SlowBrowser_OthersGoOn_ItGetsTheLatest(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		m := w.process()
		read := make(chan struct{})
		slow := w.open("/", func() { <-read })
		quick := w.open("/", nil)
		time.Sleep(10 * time.Second)
		w.hold(m, "late lock")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n, text := quick.received(); n < 18 || !strings.Contains(text, "late lock") {
			t.Errorf("the other browser was sent %d events", n)
		}
		close(read)
		synctest.Wait()
		if n, text := slow.received(); n != 2 || !strings.Contains(text, "late lock") {
			t.Errorf("the slow browser was sent %d events, want the one it was sent and the latest", n)
		}
	})
}

// The page serves at most 200 live browsers. It refuses the next one.
func TestStream_TooMany_Refused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		for range 200 {
			w.open("/", nil)
		}
		synctest.Wait()
		rec := w.request(http.MethodGet, "/",
			func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") })
		assert.Equal(t, rec.Code, http.StatusServiceUnavailable, "page 201: %d, want %d")
	})
}

// The page uses at most a tenth of a slow server's time, for a live browser and for frequent
// requests. After a round of one second, it pauses for nine seconds.
func TestPoll_SlowServer_AtMostATenthOfItsTime(t *testing.T) {
	for name, view := range map[string]func(*world){
		"live": func(w *world) {
			b := w.open("/", nil)
			time.Sleep(100 * time.Second)
			b.leave()
			time.Sleep(time.Minute) // until the last round is over
		},
		"requests": func(w *world) {
			for begun := time.Now(); time.Since(begun) < 100*time.Second; time.Sleep(time.Second) {
				w.get("/")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, w *world) {
				w.store.Set(func(_ context.Context, _ fault.Call, apply func() error) error {
					time.Sleep(500 * time.Millisecond)
					return apply()
				})
				view(w)
				if n := w.store.Count(fault.List); n > 22 {
					t.Errorf("%d commands of half a second in 100 seconds", n)
				}
			})
		})
	}
}

// pipes is a listener with connections in memory, so that their deadlines use virtual time.
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

// If a client sends only half of a request body, the page closes the connection within 15 seconds.
// A live page stays open.
func TestPage_HalfABody_IsNotWaitedFor(t *testing.T) {
	const token = "0123456789abcdef"
	inBubble(t, func(c *ui.Config) { c.Tokens = ui.Tokens{token: ""} }, func(t *testing.T, w *world) {
		on := pipes{make(chan net.Conn), make(chan struct{})}
		server := &http.Server{Handler: w.page} //nolint:gosec // the timeouts of the page itself are tested
		go func() { _ = server.Serve(on) }()
		t.Cleanup(func() { _ = server.Close() })
		begin := func(request string) net.Conn {
			t.Helper()
			client, server := net.Pipe()
			on.accepted <- server
			assert.Value(io.WriteString(client, request))(t)
			t.Cleanup(func() { _ = client.Close() })
			return client
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

// The page does not list the files of the folder /static.
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

// Cautions returns a warning for each risk of a configuration, and no other warning.
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
