package scrape

import (
	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/configserver"
)

var (
	clientsDesc = prom.NewDesc("configserver_clients", "Clients that are connected.", nil, nil)
	refusedDesc = prom.NewDesc("configserver_refused_clients_total",
		"Clients that were turned away, since too many were connected.", nil, nil)
	commandsDesc = prom.NewDesc("configserver_commands_total",
		"Commands that were passed on, by kind: read or write.", []string{"kind"}, nil)
)

// ConfigServer returns a collector of the metrics of an embedded server.
func ConfigServer(s interface{ Stats() configserver.Stats }) prom.Collector { return server{s} }

type server struct {
	source interface{ Stats() configserver.Stats }
}

// Describe implements [prom.Collector].
func (server) Describe(to chan<- *prom.Desc) {
	to <- clientsDesc
	to <- refusedDesc
	to <- commandsDesc
}

// Collect implements [prom.Collector].
func (c server) Collect(to chan<- prom.Metric) {
	s := c.source.Stats()
	to <- prom.MustNewConstMetric(clientsDesc, prom.GaugeValue, float64(s.Clients))
	to <- prom.MustNewConstMetric(refusedDesc, prom.CounterValue, float64(s.Refused))
	to <- prom.MustNewConstMetric(commandsDesc, prom.CounterValue, float64(s.Reads), "read")
	to <- prom.MustNewConstMetric(commandsDesc, prom.CounterValue, float64(s.Writes), "write")
}
