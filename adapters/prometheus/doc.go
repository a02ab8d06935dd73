// Package prometheus shows the locks of a process to Prometheus. A [Collector] is an Observer of
// package distlock, which counts what happens, and reads how the process stands when it is scraped:
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
// No label has the name of a lock, as there may be any number of them; see [Options].Names. A
// scrape sends no command, and neither a slow nor a stuck one makes a lock wait.
package prometheus
