package integration_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mongodlm/distlock"
)

// D7, G11: a server that is not there is an error within the command time-out, which names the host
// and not the password.
func TestNew_UnreachableServer_SaysSoInTime(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil { // nobody listens there any more
		t.Fatal(err)
	}
	begun := time.Now()
	_, err = distlock.New(t.Context(), distlock.Config{
		URI: "mongodb://someone:" + password + "@" + addr + "/", CommandTimeout: time.Second,
	})
	wantErr(t, err, distlock.ErrUnavailable)
	if took := time.Since(begun); took > 20*time.Second { // a second, on a machine that has time
		t.Errorf("it took %v", took)
	}
	if !strings.Contains(err.Error(), addr) {
		t.Errorf("the error does not name %s: %v", addr, err)
	}
	wantNoSecret(t, err.Error())
}

// G11: whatever is wrong with a connection string, the error does not repeat its password.
func TestNew_BadURI_KeepsThePassword(t *testing.T) {
	t.Parallel()
	for name, uri := range map[string]string{
		"scheme":     "mongo://someone:" + password + "@127.0.0.1/",
		"port":       "mongodb://someone:" + password + "@127.0.0.1:port/",
		"option":     "mongodb://someone:" + password + "@127.0.0.1/?tls=perhaps",
		"mechanism":  "mongodb://someone:" + password + "@127.0.0.1/?authMechanism=NONE",
		"not quoted": "mongodb://someone:" + password + "/%zz@127.0.0.1/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := distlock.New(t.Context(), distlock.Config{URI: uri, CommandTimeout: time.Second})
			if err == nil {
				t.Fatal("want an error")
			}
			wantNoSecret(t, err.Error())
		})
	}
}

// A caller's context that ends while the server is silent ends the call.
func TestTryLock_SilentServer_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		wire := w.d.through(t)
		m := w.start(t, func(cfg *distlock.Config) { throughWire(cfg, wire) })
		t.Cleanup(func() { wire.set(passing) }) // the manager is closed after this
		wire.set(stalling)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := m.Lock(w.name("balancer")).TryLock(ctx)
		if err == nil {
			t.Fatal("acquired from a server that does not answer")
		}
		wire.set(passing)
		// Whatever the silent server has applied is undone, and the lock can be had again.
		w.wait(t, m, w.name("balancer"))
	})
}

// password is the secret of these tests; its form in a connection string and its plain form.
const (
	password      = "n0b0dy%2Fmay%24see"
	plainPassword = "n0b0dy/may$see"
)

func wantNoSecret(t testing.TB, text string) {
	t.Helper()
	for _, secret := range []string{password, plainPassword, "n0b0dy"} {
		if strings.Contains(text, secret) {
			t.Errorf("the password is in %q", text)
		}
	}
}

// A log takes everything that is written to it. Safe for concurrent use.
type log struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}
