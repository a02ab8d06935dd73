// Package prometheus exports metrics of the locks of a process to Prometheus. A [Collector] is an
// Observer of package distlock. It counts events, and reads the state of the process during a
// scrape:
//
//	c, err := prometheus.New(prometheus.Options{})
//	...
//	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Observer: c})
//	...
//	c.Watch(manager)
//	registry.MustRegister(c)
//
// The file docs/metrics.md has the names, their units and labels. dashboard.json is a dashboard for
// Grafana, and alerts.yaml has alert rules for the metrics.
//
// The label with a lock's name is off by default, because the number of locks is unbounded; see
// [Options].Names. A scrape sends no command. A slow or stuck scrape does not delay a lock.
package prometheus
