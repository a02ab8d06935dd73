// Package prometheus exports metrics of the locks of a process to Prometheus. A [Collector] is an
// Observer of package distlock that counts events, and reads the state of the process during a
// scrape:
//
//	c, err := prometheus.New(prometheus.Options{})
//	...
//	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Observer: c})
//	...
//	c.Watch(manager)
//	registry.MustRegister(c)
//
// The names, their units and labels are in docs/metrics.md; dashboard.json is a dashboard for
// Grafana and alerts.yaml are rules for alerts over them.
//
// The label with the name of a lock is off by default, as there may be any number of locks; see
// [Options].Names. A scrape sends no command, and neither a slow nor a stuck one makes a lock wait.
package prometheus
