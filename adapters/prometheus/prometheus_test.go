package prometheus_test

import (
	"context"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"mongodlm/adapters/prometheus"
	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

func newCollector(t *testing.T, names ...string) *prometheus.Collector {
	t.Helper()
	return assert.Value(prometheus.New(prometheus.Options{Names: names}))(t)
}

func start(t *testing.T, store catalog.Catalog, names ...string) (
	*distlock.Manager, *prometheus.Collector) {
	t.Helper()
	c := newCollector(t, names...)
	m, err := distlock.New(t.Context(), distlock.Config{Catalog: store, Host: "host", Observer: c})
	assert.Must(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	c.Watch(m)
	return m, c
}

// The names and help texts of all metrics follow Prometheus' conventions.
func TestCollector_Names_FollowTheConventions(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"a"}} {
		c := newCollector(t, names...)
		everything(c)
		c.Watch(source{})
		problems := assert.Value(testutil.CollectAndLint(c))(t)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		assert.NoErr(t, prom.NewPedanticRegistry().Register(c))
	}
}

// A Collector exports the events and the state of its process. By default it does not export the
// name of a lock.
func TestCollector_OneProcess_IsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := start(t, memcatalog.New(memcatalog.Options{}))
		g := assert.Value(m.Lock("secret/name").TryLock(t.Context()))(t)
		assert.MustBe(t, assert.Err(m.Lock("secret/name").TryLock(t.Context())), distlock.ErrHeld)
		time.Sleep(45 * time.Second)
		wantShown(t, c, `distlock_acquisitions_total{cause="",outcome="acquired"} 1`,
			`distlock_acquisitions_total{cause="held",outcome="refused"} 1`, "distlock_held_locks 1\n",
			"distlock_takeover_time_seconds 900\n")
		assert.Must(t, g.Release())
		text := wantShown(t, c, "distlock_held_locks 0\n", `distlock_releases_total{cause=""} 1`,
			`distlock_hold_seconds_bucket{le="30"} 0`, `distlock_hold_seconds_bucket{le="60"} 1`,
			`distlock_commands_total{kind="release"} 1`, `distlock_listening{by="stream"} 0`,
			`distlock_server_info{kind="memory"`, `distlock_wait_seconds_count{outcome="refused"} 1`)
		if strings.Contains(text, "secret") {
			t.Errorf("the name of a lock is shown:\n%s", text)
		}
	})
}

func page(t *testing.T, c prom.Collector) string {
	t.Helper()
	r := prom.NewPedanticRegistry()
	assert.Must(t, r.Register(c))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("%d, %v: %s", w.Code, err, text)
	}
	return string(text)
}

func wantShown(t *testing.T, c prom.Collector, lines ...string) (text string) {
	t.Helper()
	text = page(t, c)
	for _, want := range lines {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in:\n%s", want, text)
		}
	}
	return text
}

// Each name in Options.Names has its own series, and all other names share one series.
func TestCollector_Names_AreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := start(t, memcatalog.New(memcatalog.Options{}), "a")
		for _, name := range []string{"a", "b", "c"} {
			g, err := m.Lock(name).TryLock(t.Context())
			if err == nil {
				err = g.Release()
			}
			assert.Must(t, err)
		}
		text := wantShown(t, c, `distlock_releases_total{cause="",lock=""} 2`,
			`distlock_releases_total{cause="",lock="a"} 1`)
		if strings.Contains(text, `lock="b"`) {
			t.Errorf("a lock that is not in Names is shown:\n%s", text)
		}
	})
	for _, names := range [][]string{make([]string, 101), {"a\xff"}} {
		if _, err := prometheus.New(prometheus.Options{Names: names}); err == nil {
			t.Errorf("%d names, the first of them %q: accepted", len(names), names[0])
		}
	}
}

// If the caller of Collect stops reading the metrics, no lock is delayed.
func TestCollect_SlowScrape_HoldsUpNoLock(t *testing.T) {
	t.Parallel()
	m, c := start(t, memcatalog.New(memcatalog.Options{}), "a", "b")
	work := func(name string) error {
		g, err := m.Lock(name).TryLock(t.Context())
		if err != nil {
			return err
		}
		return g.Release()
	}
	assert.Must(t, work("a"))
	metrics := make(chan prom.Metric)
	scraped := make(chan struct{})
	go func() { // ends when all metrics are read
		defer close(scraped)
		c.Collect(metrics)
		close(metrics)
	}()
	<-metrics // no further read
	worked := make(chan error, 1)
	go func() { worked <- work("b") }()
	select {
	case err := <-worked:
		assert.NoErr(t, err)
	case <-time.After(time.Minute):
		t.Error("a lock waits for a scrape")
	}
	for range metrics {
	}
	<-scraped
}

type source struct{ stats distlock.Stats }

func (s source) Stats() distlock.Stats {
	if s.stats.Commands == nil {
		s.stats.Commands = map[string]int64{"ping": 3}
	}
	return s.stats
}
func (source) Config() distlock.Config {
	return distlock.Config{Ping: time.Second, Takeover: time.Minute}
}

// everything sends one event and one sample of each kind to the Collector.
func everything(c *prometheus.Collector) {
	for kind := distlock.EventAcquired; kind <= distlock.EventEvicted; kind++ {
		c.Observe(distlock.Event{Kind: kind, Name: "a", Rule: "at once", Waited: time.Second,
			Held: time.Minute, Err: distlock.ErrNoHeartbeat})
	}
	for kind := distlock.EventCondemned; kind <= distlock.EventProcessOver; kind++ {
		c.Observe(distlock.Event{Kind: kind, Rule: "watch", Waited: time.Second})
	}
	for _, m := range metrics.All {
		s := metrics.Sample{Metric: m, Labels: m.Labels, Value: 1}
		if m.Asked {
			c.Asks(func(context.Context) []metrics.Sample { return []metrics.Sample{s} })
		} else {
			c.Sampled(s)
		}
	}
}

// The series of rare events have the value 0 before the first event.
func TestCollector_BeforeTheFirstLoss_ShowsZero(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	wantShown(t, c,
		`distlock_takeovers_total{rule="at_once"} 0`, `distlock_takeovers_total{rule="lease"} 0`,
		`distlock_losses_total{cause="no_ping"} 0`, `distlock_losses_total{cause="ping_changed"} 0`,
		`distlock_evictions_total{party="waiter",rule="watch"} 0`,
		`distlock_condemnations_total{rule="witnesses"} 0`)
	c.Observe(distlock.Event{Kind: distlock.EventTakenOver, Rule: "at once"})
	c.Observe(distlock.Event{Kind: distlock.EventRefused, Err: distlock.ErrNoHeartbeat})
	wantShown(t, c, `distlock_takeovers_total{rule="at_once"} 1`,
		`distlock_acquisitions_total{cause="no_heartbeat",outcome="refused"} 1`)
}

// Special and invalid characters in a server's version are escaped.
func TestCollector_OddServer_IsEscaped(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.Watch(source{})
	odd := distlock.Server{Kind: "mongos", Version: "7\xff\n\"}"}
	c.Watch(source{distlock.Stats{Listening: "polling", Server: odd}})
	text, told := page(t, c), `(?m)^distlock_server_info\{kind="mongos",version=".*"\} 1$`
	if !regexp.MustCompile(told).MatchString(text) ||
		!strings.Contains(text, `distlock_listening{by="polling"} 1`) {
		t.Error(text)
	}
}
