package prometheus

import (
	"maps"
	"slices"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

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

func gauge(name, help string, value float64) prom.Metric {
	return prom.MustNewConstMetric(prom.NewDesc(name, help, nil, nil), prom.GaugeValue, value)
}

func counter(name, help string, value int64) prom.Metric {
	desc := prom.NewDesc(name, help, nil, nil)
	return prom.MustNewConstMetric(desc, prom.CounterValue, float64(value))
}

// read returns the metrics that a scrape computes from the Source.
func read(s distlock.Stats, c distlock.Config) []prom.Metric {
	all := []prom.Metric{
		gauge("distlock_held_locks",
			"Locks that are held, including lost ones that are not yet released.", float64(s.Held)),
		gauge("distlock_waiting_calls", "Calls that wait for their locks.", float64(s.Waiting)),
		gauge("distlock_oldest_wait_seconds", "Time that the longest-waiting call has waited.",
			s.OldestWait.Seconds()),
		gauge("distlock_unreleased_locks",
			"Sessions that the background must still remove from their locks.", float64(s.Unreleased)),
		gauge("distlock_ping_age_seconds", "Time since the last acknowledged ping was sent.",
			s.PingAge.Seconds()),
		gauge("distlock_trusted_seconds",
			"Time that locks stay trusted without another ping; 0 if they are lost.",
			s.TrustedFor.Seconds()),
		gauge("distlock_ping_lateness_seconds", "Delay of the heartbeat at its last ping.",
			s.Lateness.Seconds()),
		gauge("distlock_ping_lateness_max_seconds", "Largest delay of the heartbeat.",
			s.MaxLateness.Seconds()),
		gauge("distlock_clock_skew_seconds",
			"Time of the server's clock minus that of this machine's clock.", s.Skew.Seconds()),
		gauge("distlock_ping_interval_seconds", "Time between two pings, as configured.",
			c.Ping.Seconds()),
		gauge("distlock_takeover_time_seconds",
			"Silence of a holder after which its lock may be taken over, as configured.",
			c.Takeover.Seconds()),
		gauge("distlock_max_clock_skew_seconds",
			"Clock skew that the shorter takeover rule tolerates, as configured.", c.MaxClockSkew.Seconds()),
		counter("distlock_pings_total", "Pings that were acknowledged.", s.Pings),
		counter("distlock_ping_failures_total", "Pings that were not acknowledged.", s.Failures),
		counter("distlock_process_ids_total", "Process ids that were replaced by a new one.",
			s.Processes),
		counter("distlock_ghosts_total", "Sessions that lost replies left in locks, and that were found.",
			s.Ghosts),
		counter("distlock_late_releases_total",
			"Releases in the background, after a failure, an unknown outcome or a dropped guard.", s.Late),
		counter("distlock_pruned_pings_total", "Old ping documents deleted.", s.Pruned),
		counter("distlock_panics_total", "Panics recovered in the heartbeat.", s.Panics),
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
