package main

import (
	"context"
	"maps"
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
// processes have ended. If the server does not answer, the metrics contain no counts.
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
	if got := gathered(t, newStoreCollector(ctx, st)); !maps.Equal(got,
		map[string]float64{"distlock_store_up": 0}) {
		t.Errorf("without a server it shows %v", got)
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
