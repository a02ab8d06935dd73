//go:build unix

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
)

var metricsAt = regexp.MustCompile(`metrics are at (http://127\.0\.0\.1:\d+/metrics)\n`)

func scraped(t *testing.T, out *screen) string {
	t.Helper()
	eventually(t, "the address is printed",
		func() bool { return metricsAt.MatchString(out.errs.String()) })
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply := assert.Value(client.Get(metricsAt.FindStringSubmatch(out.errs.String())[1]))(t)
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v: %s", reply.Status, err, text)
	}
	return string(text)
}

// The metrics of "distlock run" show the lock by name while its command runs. The metrics of
// "distlock serve" show its clients.
func TestMetrics_RunAndServe_AreScraped(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	served, stopped := start(ctx, t, "serve", "--dir", t.TempDir(), "--addr", "127.0.0.1:0",
		"--metrics", "0")
	awaitText(t, served.String, "\n")
	b := newBaseOf(t, strings.TrimSpace(served.String()))
	out, ended := start(t.Context(), t, b.runArgs("--metrics 0", "polite")...)
	pid := ready(t, out)
	for _, want := range []string{
		`distlock_acquisitions_total{cause="",lock="job",outcome="acquired"} 1`, "distlock_held_locks 1",
		`distlock_server_info{kind="ferretdb"`,
	} {
		if text := scraped(t, out); !strings.Contains(text, want) {
			t.Errorf("run does not show %s:\n%s", want, text)
		}
	}
	if text := scraped(t, served); !strings.Contains(text,
		`configserver_commands_total{kind="write"}`) || strings.Contains(text, "configserver_clients 0") {
		t.Errorf("serve shows:\n%s", text)
	}
	terminate(t, pid)
	await(t, ended).want(t, 7)
	interrupt()
	await(t, stopped).want(t, 0)
}

// If the port of the metrics is in use, "distlock run" fails before it acquires the lock, and
// "distlock serve" fails before it prints the address of its server. The error names the address
// and the reason.
func TestMetrics_PortInUse_EndsBeforeTheLock(t *testing.T) {
	var config net.ListenConfig
	other := assert.Value(config.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = other.Close() }()
	addr := other.Addr().String()
	b := newBase(t)
	b.run("--metrics "+addr, "env", "0").want(t, exitNotRun, "--metrics "+addr, "another program",
		"0 for a free port")
	b.cli("locks").want(t, exitFailed, "nothing was ever locked there")
	r := cli(t, "serve", "--dir", t.TempDir(), "--addr", "127.0.0.1:0", "--metrics", addr)
	if r.want(t, exitFailed, "--metrics "+addr, "another program"); r.out != "" {
		t.Errorf("a server was announced: %s", r.out)
	}
}

// The command "distlock ui" serves the page and the metrics of the database. The metrics include a
// lock whose holder has no ping.
func TestMetrics_UI_IsScraped(t *testing.T) {
	b := newBase(t)
	b.held("job", 1) // held by a process without a ping
	ctx, interrupt := context.WithCancel(t.Context())
	out, ended := start(ctx, t, b.flags("ui", "--listen", "127.0.0.1:0", "--metrics", "0")...)
	eventually(t, "it shows the holder", func() bool {
		return strings.Contains(scraped(t, out), `distlock_store_held_locks{holder="no_ping"} 1`)
	})
	interrupt()
	r := await(t, ended).want(t, 0, "distlock ui: metrics are at")
	if strings.Contains(r.errOut, "distlock run") {
		t.Errorf("it says %q", r.errOut)
	}
}
