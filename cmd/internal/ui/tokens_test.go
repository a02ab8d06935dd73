package ui_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// A token file contains one token, or one token for each user. The error for an invalid file names
// the line and the reason, and contains no token.
func TestTokens_File(t *testing.T) {
	t.Parallel()
	const a, b = "0123456789abcdef", "fedcba9876543210"
	for text, wanted := range map[string]string{
		a + "\n": "", "alice: " + a: "", "alice: " + a + "\r\n\n bob-2@ops:\t" + b + "  \n": "",
		"a:0123456789abcdefg":                          "", // a token that contains a colon
		"alice: 123":                                   "line 1: the token has 3 characters",
		"operators-of-the-night: ":                     "line 1: the token has 0 characters", // empty variable
		"alice: " + a + "\n" + b:                       "line 2: it must be a name",
		"alice: " + a + "\nbob: " + a:                  "line 2: the token occurs twice",
		"alice: " + a + "\nbob: 0123456789abcde\u00e9": "line 2: the token has characters that cannot be typed",
		a + "\nalice: " + b:                            "line 1: it must be a name",
		"":                                             "at least 16",
	} {
		url, err := run(t, ui.Access{Addr: "127.0.0.1:0", TokenFile: file(t, "t", text)})
		switch {
		case wanted == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case wanted != "" && (err == nil || !strings.Contains(err.Error(), wanted) ||
			strings.Contains(err.Error(), a)):
			t.Errorf("%q: %v, want %q", text, err, wanted)
		}
		if wanted != "" || err != nil {
			continue
		}
		for _, token := range []string{a, b, strings.TrimSpace(text), "alice"} {
			lets := slices.Contains(strings.Fields(text), token)
			if !lets && token != "alice" {
				continue // the reply to a wrong token takes a second
			}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			if answer, err := http.DefaultClient.Do(r); err != nil || (answer.StatusCode == 200) != lets {
				t.Errorf("%q lets %q in: want %v (%v)", text, token, lets, err)
			} else {
				_ = answer.Body.Close()
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A break is attributed to the owner of the token, whether the browser presents the token or the
// cookie for it. If the token has no owner, the break is attributed to the program.
func TestBreak_InTheNameOfTheToken(t *testing.T) {
	const alices, bobs, anonymous = "0123456789abcdef", "fedcba9876543210", "0011223344556677"
	var asked []string
	change := func(c *ui.Config) {
		breaks(c)
		c.Tokens = ui.Tokens{alices: "alice", bobs: "bob", anonymous: ""}
		c.InspectorOf = func(owner string) *distlock.Inspector {
			asked = append(asked, owner)
			return c.Inspector
		}
	}
	inBubble(t, change, func(t *testing.T, w *world) {
		m := w.process()
		bearer := func(token string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
		}
		cookie := func(token string) func(*http.Request) {
			return func(r *http.Request) { r.AddCookie(w.login(token).Result().Cookies()[0]) }
		}
		for i, show := range []func(*http.Request){bearer(alices), cookie(bobs), bearer(anonymous),
			cookie(alices)} {
			g := w.hold(m, fmt.Sprint("job ", i))
			page := w.request(http.MethodGet, held(g, g.Name()), show).Body.String()
			k := ticketOf.FindStringSubmatch(page)
			if k == nil {
				t.Fatalf("no form:\n%s", page)
			}
			rec := w.request(http.MethodPost, held(g, g.Name()), func(r *http.Request) {
				form(url.Values{"ticket": {k[1]}, "why": {"it hangs"}})(r)
				show(r)
			})
			want(t, rec.Body.String(), "The lock is free now")
		}
		assert.Slices(t, asked, []string{"alice", "bob", "alice"}, "broken in the names of %q, want %v")
	})
}

// A login leads to the requested page, and never to another site. The page logs a wrong token and
// replies slowly.
func TestLogin_WrongTokensAndTheAskedPage(t *testing.T) {
	const token = "0123456789abcdef"
	var log bytes.Buffer
	change := func(c *ui.Config) {
		c.Tokens, c.Logger = ui.Tokens{token: "alice"}, zerolog.New(&log)
	}
	inBubble(t, change, func(t *testing.T, w *world) {
		want(t, w.request(http.MethodGet, "/loops?name=a", nil).Body.String(),
			`name="to" value="/loops?name=a"`)
		for to, leads := range map[string]string{
			"/loops?name=a": "/loops?name=a", "": "/", "//evil.example/x": "/", "https://evil.example": "/",
			`/\evil.example`: "/", "/locks\n": "/",
		} {
			rec := w.request(http.MethodPost, "/login", form(url.Values{"token": {token}, "to": {to}}))
			if got := rec.Result().Header.Get("Location"); got != leads {
				t.Errorf("%q leads to %q, want %q", to, got, leads)
			}
		}
		begun := time.Now()
		for range 3 {
			rec := w.request(http.MethodPost, "/login", form(url.Values{"token": {"secret"}}))
			assert.Equal(t, rec.Code, http.StatusUnauthorized, "a wrong token: %d, want %d")
		}
		w.request(http.MethodGet, "/", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") })
		if took := time.Since(begun); took < 4*time.Second {
			t.Errorf("four wrong tokens took %v", took)
		}
		if n := strings.Count(log.String(), "wrong token"); n != 4 ||
			strings.Contains(log.String(), "secret") {
			t.Errorf("the log has %d of 4:\n%s", n, log.String())
		}
	})
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

// While eight replies to wrong tokens are delayed, further wrong tokens are refused immediately.
func TestLogin_ManyWrongTokens_FewAreDelayed(t *testing.T) {
	inBubble(t, func(c *ui.Config) { c.Tokens = ui.Tokens{"0123456789abcdef": ""} },
		func(t *testing.T, w *world) {
			var all sync.WaitGroup
			var refused atomic.Int64
			begun := time.Now()
			for range 100 {
				all.Go(func() {
					if w.login("wrong").Code == http.StatusTooManyRequests && time.Since(begun) < time.Second {
						refused.Add(1)
					}
				})
			}
			all.Wait()
			assert.Equal(t, refused.Load(), int64(92), "%d of 100 refused, want %d")
		})
}
