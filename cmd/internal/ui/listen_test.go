package ui_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mongodlm/catalog/memcatalog"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// The page refuses an address that other machines can reach, unless a token or TLS is configured.
// The error names the remedy.
func TestAccess_Check(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		access ui.Access
		breaks bool
		text   string // of the error; empty if there is none
	}{
		{"default", ui.Access{Addr: ui.DefaultAddr}, true, ""},
		{"by name", ui.Access{Addr: "localhost:0"}, true, ""},
		{"IPv6", ui.Access{Addr: "[::1]:80"}, true, ""},
		{"all addresses", ui.Access{Addr: ":8087"}, false, "--token-file"},
		{"all addresses, in figures", ui.Access{Addr: "0.0.0.0:8087"}, false, "--tls-cert"},
		{"all of IPv6", ui.Access{Addr: "[::]:8087"}, false, "--token-file"},
		{"another name", ui.Access{Addr: "host.example:8087"}, false, "SSH tunnel"},
		{"a name that begins alike", ui.Access{Addr: "localhost.example:8087"}, false, "--token-file"},
		{"with a token", ui.Access{Addr: ":8087", TokenFile: "t"}, true, ""},
		{"with TLS", ui.Access{Addr: ":8087", CertFile: "c", KeyFile: "k"}, false, ""},
		{"with TLS, to break", ui.Access{Addr: ":8087", CertFile: "c", KeyFile: "k"}, true,
			"--allow-break"},
		{"with both, to break", ui.Access{Addr: ":8087", CertFile: "c", KeyFile: "k", TokenFile: "t"},
			true, ""},
		{"half of TLS", ui.Access{Addr: "localhost:1", CertFile: "c"}, false, "go together"},
		{"no port", ui.Access{Addr: "localhost"}, false, "give a host and a port"},
		{"no such port", ui.Access{Addr: "localhost:99999"}, false, "0 to 65535"},
	} {
		c.access.AddrFlag = "--listen"
		err := c.access.Check(c.breaks)
		if c.text == "" && err != nil || c.text != "" &&
			(err == nil || !strings.Contains(err.Error(), c.text)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		}
	}
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

func run(t *testing.T, access ui.Access) (url string, err error) {
	t.Helper()
	access.AddrFlag = "--listen"
	inspector, err := distlock.NewInspector(t.Context(),
		distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	assert.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- ui.Run(ctx, access, ui.Config{Inspector: inspector}, func(url string) { ready <- url })
	}()
	select {
	case url = <-ready:
		t.Cleanup(func() {
			cancel()
			assert.NoErr(t, <-ended)
		})
		return url, nil
	case err = <-ended:
		cancel()
		return "", err
	}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	assert.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Run refuses an invalid configuration before it serves the page. The error names the flag.
func TestRun_CannotBe_SaysWhy(t *testing.T) {
	t.Parallel()
	used := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer used.Close()
	for _, c := range []struct {
		name   string
		access ui.Access
		texts  []string
	}{
		{"port in use", ui.Access{Addr: used.Addr().String()},
			[]string{"--listen", "is in use", "another port"}},
		{"no token file", ui.Access{Addr: "127.0.0.1:0", TokenFile: "/nowhere"},
			[]string{"--token-file"}},
		{"bad certificate", ui.Access{Addr: "127.0.0.1:0", CertFile: file(t, "c", "x"),
			KeyFile: file(t, "k", "x")}, []string{"--tls-cert"}},
		{"open to all", ui.Access{Addr: "0.0.0.0:0"}, []string{"--token-file"}},
	} {
		_, err := run(t, c.access)
		for _, text := range c.texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", c.name, err, text)
			}
		}
	}
}

// With TLS and a token, Run serves the page over TLS and only to clients with the token. Run ends
// even while a live page is open.
func TestRun_TLSAndToken(t *testing.T) {
	t.Parallel()
	const token = "a token of some length"
	cert, key, pool := certificate(t)
	url, err := run(t, ui.Access{Addr: "127.0.0.1:0",
		TokenFile: file(t, "t", strings.ReplaceAll(token, " ", "-")+"\n"), CertFile: cert, KeyFile: key})
	assert.Must(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ask := func(authorization, accept string) *http.Response {
		t.Helper()
		r := assert.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Accept", accept)
		return assert.Value(transport.RoundTrip(r))(t)
	}
	if answer := ask("", ""); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %d", answer.StatusCode)
	} else {
		_ = answer.Body.Close()
	}
	live := ask("Bearer a-token-of-some-length", "text/event-stream")
	defer live.Body.Close()
	begin := make([]byte, len("event: view"))
	if _, err := io.ReadFull(live.Body, begin); err != nil || string(begin) != "event: view" {
		t.Errorf("live page: %d, %q, %v", live.StatusCode, begin, err)
	}
}

// certificate returns the self-signed certificate of package httptest for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	pool = x509.NewCertPool()
	pool.AddCert(server.Certificate())
	encoded := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pair := server.TLS.Certificates[0]
	private := assert.Value(x509.MarshalPKCS8PrivateKey(pair.PrivateKey))(t)
	return file(t, "cert.pem", encoded("CERTIFICATE", pair.Certificate[0])),
		file(t, "key.pem", encoded("PRIVATE KEY", private)), pool
}
