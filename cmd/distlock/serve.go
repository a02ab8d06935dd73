package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/scrape"
	"mongodlm/cmd/internal/ui"
	"mongodlm/configserver"
	"mongodlm/distlock"
)

// defaultServeAddr has the port after MongoDB's default port, so that this server and a mongod can
// run on one machine.
const defaultServeAddr = "127.0.0.1:27018"

type serve struct {
	logging
	dir, addr string
	metrics   metrics
}

func (v *serve) flags(f *pflag.FlagSet) {
	v.logging.flags(f)
	v.metrics.flags(f)
	f.StringVar(&v.dir, "dir", "", "the `folder` of the documents, created if necessary; required")
	f.StringVar(&v.addr, "addr", defaultServeAddr,
		"the loopback `address` to listen on; port 0 selects a free port")
}

func (v *serve) accept(c call) error {
	if v.dir == "" {
		return errors.New("--dir is missing: name the folder of the documents")
	}
	if err := v.metrics.accept(); err != nil {
		return err
	}
	return c.noArguments()
}

func (v *serve) run(ctx context.Context, s stdio) error {
	log, closeLog, err := v.logging.open()
	if err != nil {
		return err
	}
	defer closeLog()
	server, err := configserver.Start(ctx, configserver.Config{Dir: v.dir, Addr: v.addr, Logger: log})
	if err != nil {
		return err
	}
	say := func(format string, args ...any) { fmt.Fprintf(s.errOut, format+"\n", args...) }
	closeMetrics, err := v.metrics.serve(ctx, say, scrape.ConfigServer(server))
	if err != nil {
		return errors.Join(err, bounded(closeLimit, server.Close))
	}
	defer closeMetrics()
	fmt.Fprintln(s.out, server.URI())
	fmt.Fprintf(s.errOut, "config server for trials and tests; export %s='%s'\n"+
		"interrupt the server to end it\n", envURI, server.URI())
	<-ctx.Done()
	return bounded(closeLimit, server.Close)
}

// metrics is the flag --metrics, the address for the metrics of the program.
type metrics struct{ addr string }

func (m *metrics) flags(f *pflag.FlagSet) { f.StringVar(&m.addr, "metrics", "", scrape.Usage) }

func (m *metrics) accept() (err error) {
	if m.addr != "" {
		m.addr, err = scrape.Accept(m.addr)
	}
	return err
}

// serve starts a server for the metrics of the collectors and prints the address. The returned
// function ends the server. Without the flag --metrics, serve does nothing.
func (m *metrics) serve(ctx context.Context, say func(string, ...any),
	shown ...prom.Collector) (end func(), err error) {
	if m.addr == "" {
		return func() {}, nil
	}
	url, end, err := scrape.Start(ctx, m.addr, shown...)
	if err == nil {
		say("metrics are at %s", url)
	}
	return end, err
}

type page struct {
	connection
	logging
	access     ui.Access
	metrics    metrics
	interval   time.Duration
	allowBreak bool
}

func (p *page) flags(f *pflag.FlagSet) {
	p.connection.flags(f)
	p.logging.flags(f)
	p.metrics.flags(f)
	p.access.Flags(f)
	f.DurationVar(&p.interval, "interval", ui.DefaultInterval,
		"the time between two reads of the server, for all browsers\ntogether; "+
			"without a browser there are none")
	f.BoolVar(&p.allowBreak, "allow-break", false, "let the page break locks, and retry or discard "+
		"dead rows of\nqueues; default: the page is read-only")
}

func (p *page) accept(c call) error {
	if err := c.noArguments(); err != nil {
		return err
	}
	if p.interval < ui.MinInterval {
		return fmt.Errorf("--interval is %v, must be at least %v", p.interval, ui.MinInterval)
	}
	if err := errors.Join(p.access.Check(p.allowBreak), p.metrics.accept()); err != nil {
		return err
	}
	return p.connection.accept(c)
}

func (p *page) run(ctx context.Context, s stdio) error {
	st, err := p.connection.open(ctx, 0, p.logging)
	if err != nil {
		return err
	}
	defer st.close()
	endMetrics, err := p.metrics.serve(ctx, s.say, newStoreCollector(ctx, st))
	if err != nil {
		return err
	}
	defer endMetrics()
	for _, caution := range p.access.Cautions(p.allowBreak) {
		s.say("%s", caution)
	}
	log := st.log
	if p.logging.path == "" { // changes and wrong tokens must not pass unseen
		log = zerolog.New(s.errOut).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	}
	return ui.Run(ctx, p.access, ui.Config{
		Inspector: st.Inspector, Past: st.read, Client: st.client, Hosts: p.hosts(), Database: p.database,
		Interval: p.interval, AllowBreak: p.allowBreak, Logger: log,
		InspectorOf: func(who string) *distlock.Inspector {
			if one, err := st.inspector(ctx, who+"@"+hostname()); err == nil {
				return one
			}
			return st.Inspector // the only error is the end of ctx
		},
		Members: func(ctx context.Context) ([]ui.Member, error) { return p.readMembers(ctx, st) },
		Void:    func(ctx context.Context) (string, error) { return st.noLocks(ctx), nil },
	}, func(url string) {
		fmt.Fprintln(s.out, url)
		fmt.Fprintln(s.errOut, "open the address in a browser; interrupt the command to end it")
	})
}
