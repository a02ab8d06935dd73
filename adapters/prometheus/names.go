package prometheus

import (
	"maps"
	"slices"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// A reading is a metric that a scrape computes from the Source.
type reading struct {
	desc *prom.Desc
	kind prom.ValueType
	of   func(distlock.Stats, distlock.Config) float64
}

// These metrics have labels. A scrape computes them from the Source.
var (
	commandsDesc = prom.NewDesc("distlock_commands_total", "Commands sent to the store, by kind.",
		[]string{"kind"}, nil)
	listeningDesc = prom.NewDesc("distlock_listening",
		"1 for the way in which waiters receive grants: stream or polling; both are 0 without waiters.",
		[]string{"by"}, nil)
	serverDesc = prom.NewDesc("distlock_server_info",
		"Always 1; the labels are the kind and the version of the server.",
		[]string{"kind", "version"}, nil)
)

var readings = []reading{
	gauge("distlock_held_locks", "Locks that are held, including lost ones that are not yet released.",
		func(s distlock.Stats, _ distlock.Config) float64 { return float64(s.Held) }),
	gauge("distlock_waiting_calls", "Calls that wait for their locks.",
		func(s distlock.Stats, _ distlock.Config) float64 { return float64(s.Waiting) }),
	gauge("distlock_oldest_wait_seconds", "Time that the longest-waiting call has waited.",
		func(s distlock.Stats, _ distlock.Config) float64 { return s.OldestWait.Seconds() }),
	gauge("distlock_unreleased_locks",
		"Sessions that the background must still remove from their locks.",
		func(s distlock.Stats, _ distlock.Config) float64 { return float64(s.Unreleased) }),
	gauge("distlock_ping_age_seconds", "Time since the last acknowledged ping was sent.",
		func(s distlock.Stats, _ distlock.Config) float64 { return s.PingAge.Seconds() }),
	gauge("distlock_trusted_seconds",
		"Time that locks stay trusted without another ping; 0 if they are lost.",
		func(s distlock.Stats, _ distlock.Config) float64 { return s.TrustedFor.Seconds() }),
	gauge("distlock_ping_lateness_seconds", "Delay of the heartbeat at its last ping.",
		func(s distlock.Stats, _ distlock.Config) float64 { return s.Lateness.Seconds() }),
	gauge("distlock_ping_lateness_max_seconds", "Largest delay of the heartbeat.",
		func(s distlock.Stats, _ distlock.Config) float64 { return s.MaxLateness.Seconds() }),
	gauge("distlock_clock_skew_seconds",
		"Time of the server's clock minus that of this machine's clock.",
		func(s distlock.Stats, _ distlock.Config) float64 { return s.Skew.Seconds() }),
	gauge("distlock_ping_interval_seconds", "Time between two pings, as configured.", setting(
		func(c distlock.Config) time.Duration { return c.Ping })),
	gauge("distlock_takeover_time_seconds",
		"Silence of a holder after which its lock may be taken over, as configured.", setting(
			func(c distlock.Config) time.Duration { return c.Takeover })),
	gauge("distlock_max_clock_skew_seconds",
		"Clock skew that the shorter takeover rule tolerates, as configured.", setting(
			func(c distlock.Config) time.Duration { return c.MaxClockSkew })),
	counter("distlock_pings_total", "Pings that were acknowledged.",
		func(s distlock.Stats) int64 { return s.Pings }),
	counter("distlock_ping_failures_total", "Pings that were not acknowledged.",
		func(s distlock.Stats) int64 { return s.Failures }),
	counter("distlock_process_ids_total", "Process ids that were replaced by a new one.",
		func(s distlock.Stats) int64 { return s.Processes }),
	counter("distlock_ghosts_total", "Sessions that lost replies left in locks, and that were found.",
		func(s distlock.Stats) int64 { return s.Ghosts }),
	counter("distlock_late_releases_total",
		"Releases in the background, after a failure, an unknown outcome or a dropped guard.",
		func(s distlock.Stats) int64 { return s.Late }),
	counter("distlock_pruned_pings_total", "Old ping documents deleted.",
		func(s distlock.Stats) int64 { return s.Pruned }),
	counter("distlock_panics_total", "Panics recovered in the heartbeat.",
		func(s distlock.Stats) int64 { return s.Panics }),
}

func gauge(name, help string, of func(distlock.Stats, distlock.Config) float64) reading {
	return reading{prom.NewDesc(name, help, nil, nil), prom.GaugeValue, of}
}

func counter(name, help string, of func(distlock.Stats) int64) reading {
	return reading{prom.NewDesc(name, help, nil, nil), prom.CounterValue,
		func(s distlock.Stats, _ distlock.Config) float64 { return float64(of(s)) }}
}

func setting(of func(distlock.Config) time.Duration) func(distlock.Stats, distlock.Config) float64 {
	return func(_ distlock.Stats, c distlock.Config) float64 { return of(c).Seconds() }
}

func read(s distlock.Stats, cfg distlock.Config) []prom.Metric {
	var all []prom.Metric
	for _, r := range readings {
		all = append(all, prom.MustNewConstMetric(r.desc, r.kind, r.of(s, cfg)))
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Commands)) {
		n := float64(s.Commands[kind])
		all = append(all, prom.MustNewConstMetric(commandsDesc, prom.CounterValue, n, kind))
	}
	for _, by := range []string{"stream", "polling"} {
		is := 0.0
		if s.Listening == by {
			is = 1
		}
		all = append(all, prom.MustNewConstMetric(listeningDesc, prom.GaugeValue, is, by))
	}
	return append(all, prom.MustNewConstMetric(serverDesc, prom.GaugeValue, 1, s.Server.Kind,
		catalog.Printable(s.Server.Version, 40)))
}
