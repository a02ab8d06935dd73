//go:build unix

package main

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
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

// If the port of the metrics is in use, the commands fail early: "distlock run" before it acquires
// the lock, and "distlock serve" before it prints the address of its server.
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

func gathered(t *testing.T, o *storeCollector) map[string]float64 {
	t.Helper()
	r := prom.NewPedanticRegistry()
	assert.Must(t, r.Register(o))
	families := assert.Value(r.Gather())(t)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				name.WriteString(" " + l.GetName() + "=" + l.GetValue())
			}
			all[name.String()] = m.GetGauge().GetValue()
		}
	}
	return all
}

// The metrics count the locks of dead processes, and the events of the last hour, even after the
// processes have ended. If the server does not answer, or the database never had a lock, the
// metrics contain no counts.
func TestStoreCollector_DeadHolders_AreCounted(t *testing.T) {
	b := newBase(t)
	pingFields := func(extra ...bson.E) []bson.E {
		return append(extra, bson.E{Key: "seq", Value: int64(1)},
			bson.E{Key: "pingMS", Value: int64(30_000)}, bson.E{Key: "takeoverMS", Value: int64(900_000)})
	}
	for process, old := range map[string]time.Duration{"alive:1:1:a": time.Second,
		"late:1:1:a": 2 * time.Minute, "silent:1:1:a": time.Hour} {
		b.ping(process, old, pingFields()...)
		b.heldBy(process, process, 1)
	}
	b.ping("condemned:1:1:a", time.Hour,
		pingFields(bson.E{Key: "condemned", Value: bsontest.D("by", "x", "evidence", "y")})...)
	b.heldBy("condemned", "condemned:1:1:a", 1)
	b.heldBy("condemned too", "condemned:1:1:a", 1)
	b.heldBy("gone", "gone:1:1:a", 1)
	for i, kind := range []string{"broken", "broken", "dropped", "lost"} {
		b.insert(history.Collection, history.Entry{ID: bson.NewObjectID(), Kind: kind,
			At: clock.System().Now().Wall.Add(-time.Duration(i) * 40 * time.Minute)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	st := assert.Value((&connection{uri: b.uri, database: b.name}).open(ctx, 0, logging{}))(t)
	defer st.close()
	want := map[string]float64{"distlock_store_up": 1, "distlock_store_held_locks holder=alive": 1,
		"distlock_store_held_locks holder=late": 1, "distlock_store_held_locks holder=silent": 1,
		"distlock_store_held_locks holder=condemned": 2, "distlock_store_held_locks holder=no_ping": 1,
		"distlock_store_held_locks holder=foreign": 0, "distlock_store_events kind=broken": 2,
		"distlock_store_events kind=dropped": 0}
	var o *storeCollector
	var got map[string]float64
	eventually(t, "all metrics are collected", func() bool {
		o = newStoreCollector(ctx, st)
		got = gathered(t, o)
		return len(got) == len(want)
	})
	if !maps.Equal(got, want) {
		t.Errorf("it shows %v, want %v", got, want)
	}
	b.heldBy("another", "gone:1:1:a", 1)
	if got := gathered(t, o); !maps.Equal(got, want) {
		t.Errorf("it asks at each scrape: %v", got)
	}
	cancel()
	other := assert.Value((&connection{uri: b.uri, database: "nosuch"}).open(t.Context(), 0, logging{}))(t)
	defer other.close()
	for what, o := range map[string]*storeCollector{"without a server": newStoreCollector(ctx, st),
		"without locks": newStoreCollector(t.Context(), other)} {
		if got := gathered(t, o); !maps.Equal(got, map[string]float64{"distlock_store_up": 0}) {
			t.Errorf("%s it shows %v", what, got)
		}
	}
}

// docs/metrics.md lists exactly the metrics of a storeCollector.
func TestStoreCollector_Document_ListsItsMetrics(t *testing.T) {
	t.Parallel()
	text := string(assert.Value(os.ReadFile("../../docs/metrics.md"))(t))
	descs := make(chan *prom.Desc, 10)
	(&storeCollector{}).Describe(descs)
	close(descs)
	if n := strings.Count(text, "\n- `distlock_store_"); n != len(descs) {
		t.Errorf("%d metrics are listed, want %d", n, len(descs))
	}
	for d := range descs {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		if name, _, _ = strings.Cut(name, `"`); !regexp.MustCompile("(?m)^- `" + name +
			"(?:{\\w+})?`: ").MatchString(text) {
			t.Errorf("%s is not listed", name)
		}
	}
}
