package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/ui"
)

// page shows the locks in a browser.
type page struct {
	connection
	logging
	access     ui.Access
	interval   time.Duration
	allowBreak bool
}

func (p *page) flags(f *pflag.FlagSet) {
	p.connection.flags(f)
	p.logging.flags(f)
	web := flag.NewFlagSet("", flag.ContinueOnError)
	p.access.Flags(web)
	f.AddGoFlagSet(web)
	f.DurationVar(&p.interval, "interval", ui.DefaultInterval, "the time between two looks at the server, for all "+
		"browsers\ntogether; none while nobody looks")
	f.BoolVar(&p.allowBreak, "allow-break", false, "let the page break locks; without, it only shows")
}

func (p *page) accept(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	if p.interval < ui.MinInterval {
		return fmt.Errorf("--interval is %v, must be at least %v", p.interval, ui.MinInterval)
	}
	if err := p.access.Check(p.allowBreak); err != nil {
		return err
	}
	return p.connection.accept(c)
}

func (p *page) run(ctx context.Context, s stdio) error {
	log, closeLog, err := p.logging.open()
	if err != nil {
		return err
	}
	defer closeLog()
	st, err := p.connection.open(ctx, 0, log)
	if err != nil {
		return err
	}
	defer st.close()
	return ui.Run(ctx, p.access, ui.Config{
		Inspector: st.Inspector, Past: st.past, Client: st.client, Hosts: p.hosts(), Database: p.database, Interval: p.interval,
		AllowBreak: p.allowBreak, Redact: func(text string) string { return redact(text, p.uri) }, Logger: log,
		Members: func(ctx context.Context) ([]ui.Member, error) { return p.members(ctx, st) },
	}, func(url string) {
		fmt.Fprintln(s.out, url)
		fmt.Fprintln(s.errOut, "open it in a browser; interrupt this to end it")
	})
}

// members asks the members of a replica set for their clocks.
func (p *page) members(ctx context.Context, st *store) ([]ui.Member, error) {
	all, err := p.askMembers(ctx, st)
	shown := make([]ui.Member, len(all))
	for i, m := range all {
		shown[i] = ui.Member{Host: m.Host, Kind: m.State, Ahead: time.Duration(m.AheadMS) * time.Millisecond,
			RoundTrip: time.Duration(m.RoundTripMS) * time.Millisecond, Problem: m.Problem}
	}
	return shown, err
}
