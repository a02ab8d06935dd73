package main

import (
	"context"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/scrape"
)

// metrics is the flag --metrics: the address at which the program serves its metrics.
type metrics struct{ addr string }

func (m *metrics) flags(f *pflag.FlagSet) { f.StringVar(&m.addr, "metrics", "", scrape.Usage) }

func (m *metrics) accept() (err error) {
	if m.addr != "" {
		m.addr, err = scrape.Accept(m.addr)
	}
	return err
}

// If the flag is set, serve exports the collectors until end is called, and prints the address.
func (m *metrics) serve(ctx context.Context, say func(string, ...any),
	shown ...prom.Collector) (end func(), err error) {
	if m.addr == "" {
		return func() {}, nil
	}
	server, err := scrape.Start(ctx, m.addr, shown...)
	if err != nil {
		return nil, err
	}
	say("metrics are at %s", server.URL())
	return server.Close, nil
}
