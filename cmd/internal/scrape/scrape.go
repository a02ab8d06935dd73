// Package scrape serves metrics to Prometheus. It implements the flag --metrics of the commands
// distlock and balancer-demo.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mongodlm/configserver"
)

const (
	readLimit  = 5 * time.Second
	writeLimit = 30 * time.Second
	atATime    = 4 // concurrent scrapes
	closeLimit = 2 * time.Second
)

// Usage is the help text of the flag --metrics.
const Usage = "serve metrics to Prometheus at this `address`, host:port or a port alone, at " +
	"/metrics;\nloopback unless a host is named, port 0 selects a free port"

// Accept validates the value of --metrics and returns it as host:port. If the value has no host, as
// in "9187" or ":9187", the host is 127.0.0.1. To serve other machines, name a host such as
// 0.0.0.0.
func Accept(addr string) (string, error) {
	if _, err := strconv.ParseUint(addr, 10, 64); err == nil {
		addr = ":" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("--metrics %q is not an address: give host:port, or a port", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("--metrics %q has no valid port: give a number up to 65535", addr)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Start serves the metrics of the given collectors, of the Go runtime and of the process. The
// address must come from Accept. The errors name the flag --metrics. The function end stops the
// server. It waits up to two seconds for running scrapes.
func Start(ctx context.Context, addr string, shown ...prom.Collector) (url string, end func(),
	err error) {
	registry := prom.NewRegistry()
	all := append(shown, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return "", nil, fmt.Errorf("--metrics: %w", err)
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return "", nil, fmt.Errorf("--metrics %s: the port is in use by another program; use another "+
			"port, or 0 for a free port", addr)
	}
	if err != nil {
		return "", nil, fmt.Errorf("--metrics %s: %w", addr, err)
	}
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: atATime, Timeout: writeLimit / 2,
	}))
	server := http.Server{Handler: pages, ReadTimeout: readLimit, WriteTimeout: writeLimit,
		MaxHeaderBytes: 16 << 10}
	served := make(chan struct{})
	go func() { // ends with the server
		defer close(served)
		_ = server.Serve(listener) // always ErrServerClosed
	}()
	return "http://" + listener.Addr().String() + "/metrics", func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-served
	}, nil
}

var (
	clientsDesc = prom.NewDesc("configserver_clients", "Connected clients.", nil, nil)
	refusedDesc = prom.NewDesc("configserver_refused_clients_total",
		"Clients that were refused because too many were connected.", nil, nil)
	commandsDesc = prom.NewDesc("configserver_commands_total",
		"Forwarded commands, by kind: read or write.", []string{"kind"}, nil)
)

// ConfigServer returns a collector of the metrics of an embedded config server.
func ConfigServer(from interface{ Stats() configserver.Stats }) prom.Collector {
	return prom.CollectorFunc(func(to chan<- prom.Metric) {
		s := from.Stats()
		to <- prom.MustNewConstMetric(clientsDesc, prom.GaugeValue, float64(s.Clients))
		to <- prom.MustNewConstMetric(refusedDesc, prom.CounterValue, float64(s.Refused))
		to <- prom.MustNewConstMetric(commandsDesc, prom.CounterValue, float64(s.Reads), "read")
		to <- prom.MustNewConstMetric(commandsDesc, prom.CounterValue, float64(s.Writes), "write")
	})
}
