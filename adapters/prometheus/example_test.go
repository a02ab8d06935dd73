package prometheus_test

import (
	"context"
	"fmt"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/adapters/prometheus"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
)

// A Collector observes the locks of a Manager. During each scrape it reads the state of the
// Manager.
func Example() {
	ctx := context.Background()
	collector, err := prometheus.New(prometheus.Options{Names: []string{"reports"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager, err := distlock.New(ctx, distlock.Config{
		Catalog:  memcatalog.New(memcatalog.Options{}), // or a URI
		Observer: collector,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer manager.Close(ctx)
	collector.Watch(manager)
	registry := prom.NewRegistry()
	registry.MustRegister(collector)

	guard, err := manager.Lock("reports").TryLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer guard.Release()
	families, err := registry.Gather() // as promhttp does
	for _, f := range families {
		switch f.GetName() {
		case "distlock_held_locks":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		case "distlock_acquisitions_total":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	fmt.Println(err)
	// Output:
	// distlock_acquisitions_total 1
	// distlock_held_locks 1
	// <nil>
}
