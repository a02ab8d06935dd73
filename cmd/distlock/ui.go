package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
)

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
	web := flag.NewFlagSet("", flag.ContinueOnError)
	p.access.Flags(web)
	f.AddGoFlagSet(web)
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
	say := func(format string, args ...any) {
		fmt.Fprintf(s.errOut, "distlock ui: "+format+"\n", args...)
	}
	endMetrics, err := p.metrics.serve(ctx, say, newStoreCollector(ctx, st))
	if err != nil {
		return err
	}
	defer endMetrics()
	for _, caution := range p.access.Cautions(p.allowBreak) {
		say("%s", caution)
	}
	return ui.Run(ctx, p.access, ui.Config{
		Inspector: st.Inspector, Past: st.read, Client: st.client, Hosts: p.hosts(), Database: p.database,
		Interval: p.interval, AllowBreak: p.allowBreak, Logger: st.log,
		InspectorOf: func(who string) *distlock.Inspector {
			if one, err := st.inspector(ctx, who+"@"+hostname()); err == nil {
				return one
			}
			return st.Inspector // the only error is the end of ctx
		},
		Members: func(ctx context.Context) ([]ui.Member, error) { return p.members(ctx, st) },
		Void:    func(ctx context.Context) (string, error) { return st.noLocks(ctx), nil },
	}, func(url string) {
		fmt.Fprintln(s.out, url)
		fmt.Fprintln(s.errOut, "open the address in a browser; interrupt the command to end it")
	})
}

func (p *page) members(ctx context.Context, st *store) ([]ui.Member, error) {
	all, err := p.readMembers(ctx, st)
	shown := make([]ui.Member, len(all))
	for i, m := range all {
		shown[i] = ui.Member{Host: m.Host, Kind: m.State, Ahead: duration(m.AheadMS),
			RoundTrip: duration(m.RoundTripMS), Problem: m.Problem}
	}
	return shown, err
}
