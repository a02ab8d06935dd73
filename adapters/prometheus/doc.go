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
// The file docs/metrics.md lists the metrics with their units and labels. dashboard.json is a
// dashboard for Grafana, and alerts.yaml contains alert rules for the metrics.
//
// By default the metrics do not contain the names of locks, because the number of locks is
// unbounded, see [Options].Names. A scrape sends commands only to count the rows of queues, at most
// every 15 s. A slow or stuck scrape does not delay a lock.
package prometheus
