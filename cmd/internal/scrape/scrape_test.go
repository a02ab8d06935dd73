package scrape_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/cmd/internal/scrape"
	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply := assert.Value(client.Get(url))(t)
	defer func() { _ = reply.Body.Close() }()
	text := assert.Value(io.ReadAll(reply.Body))(t)
	return reply.StatusCode, string(text)
}

// The page /metrics contains the given metrics and the metrics of the Go runtime. The server has no
// other page.
func TestStart_ServesMetricsAndNothingElse(t *testing.T) {
	t.Parallel()
	counter := prom.NewCounter(prom.CounterOpts{Name: "mine_total", Help: "Mine."})
	url, end, err := scrape.Start(t.Context(), "127.0.0.1:0", counter)
	assert.Must(t, err)
	defer end()
	code, text := get(t, url)
	if code != 200 || !strings.Contains(text, "mine_total 0") ||
		!strings.Contains(text, "go_goroutines") {
		t.Errorf("%d: %s", code, text)
	}
	if code, _ := get(t, strings.TrimSuffix(url, "metrics")+"debug/pprof/"); code != 404 {
		t.Errorf("another page answers %d", code)
	}
}

// The metrics of an embedded server are documented in docs/metrics.md and follow the conventions of
// Prometheus.
func TestConfigServer_IsDocumented(t *testing.T) {
	t.Parallel()
	text := assert.Value(os.ReadFile("../../../docs/metrics.md"))(t)
	r := prom.NewPedanticRegistry()
	assert.Must(t, r.Register(scrape.ConfigServer(counted{})))
	families, err := r.Gather()
	if err != nil || len(families) != 3 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for _, f := range families {
		var item strings.Builder
		item.WriteString("\n- `" + f.GetName())
		for _, l := range f.GetMetric()[0].GetLabel() {
			item.WriteString("{" + l.GetName() + "}")
		}
		if !strings.Contains(string(text), item.String()+"`: ") {
			t.Errorf("not documented: %s", item.String())
		}
		if counter := strings.HasSuffix(f.GetName(),
			"_total"); counter != (f.GetType().String() == "COUNTER") {
			t.Errorf("%s is a %s", f.GetName(), f.GetType())
		}
	}
}

type counted struct{}

func (counted) Stats() configserver.Stats { return configserver.Stats{Clients: 3, Writes: 2} }

// If the address has no host, only this machine can read the metrics. The error for an invalid
// address names the option.
func TestAccept_LoopbackUnlessAHostIsNamed(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"9187": "127.0.0.1:9187", ":9187": "127.0.0.1:9187", "0": "127.0.0.1:0",
		"0.0.0.0:9187": "0.0.0.0:9187",
		"[::1]:9187":   "[::1]:9187", "localhost:0": "localhost:0",
		"": "", "host": "", "host:": "", "host:http": "", "1:2:3": "", ":65536": "", "70000": "",
		":-1": "",
	} {
		got, err := scrape.Accept(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is taken as %q, %v; want %q", given, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "--metrics") {
			t.Errorf("%q: the error does not name the option: %v", given, err)
		}
	}
}
