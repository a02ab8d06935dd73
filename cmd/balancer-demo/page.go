package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

// With --http, the demo continues after its report. lingerKill is the time after which it then
// kills the lock holder again.
const lingerKill = 30 * time.Second

func (o opts) access() ui.Access { return ui.Access{Addr: o.http, AddrFlag: "--http"} }

// checkPage refuses an address that other machines can reach, because the demo has no flags for
// tokens and certificates.
func (o opts) checkPage() error {
	if o.http == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.http); err == nil && !o.access().Local() {
		return fmt.Errorf("--http is %q, which other machines can reach: give a loopback address, or "+
			"use \"distlock ui\", which supports tokens and TLS", o.http)
	}
	return o.access().Check(false)
}

// withPage calls the given function, and serves the web page meanwhile. After that, the page and
// the balancers run until ctx ends. Without the flag --http, withPage only calls the function.
func (d *demo) withPage(ctx context.Context, play func() (bool, error)) (bool, error) {
	if d.o.http == "" {
		return play()
	}
	client, database := d.meta.client, d.o.database
	inspector, err := distlock.NewInspector(ctx, distlock.Config{Client: client, Database: database})
	if err != nil {
		return false, err
	}
	past := func(ctx context.Context, q history.Query) (
		[]history.Entry, []*distlock.MalformedError, error) {
		return history.Read(ctx, client, database, q)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { // ends with ctx; all later returns wait for it
		ended <- ui.Run(ctx, d.o.access(), ui.Config{Inspector: inspector, Past: past, Client: client,
			Hosts: d.server, Database: database, Interval: demoPing},
			func(url string) { ready <- url })
	}()
	var url string
	select {
	case url = <-ready:
	case err = <-ended:
		return false, err
	}
	d.say(0, "page", "%s", url)
	ok, err := play()
	if err == nil {
		fmt.Fprintf(d.out, "\nthe page remains at %s until the demo is interrupted; the history of the "+
			"lock, with the evidence of each takeover, is at %slock?name=%s\n", url, url, balancer.LockName)
		err = d.linger(ctx)
	}
	cancel()
	return ok, errors.Join(err, <-ended)
}

// linger runs the balancers until ctx ends, and kills the lock holder every lingerKill. The page
// therefore shows a held lock and a recent takeover.
func (d *demo) linger(ctx context.Context) error {
	harm, due := len(d.faults.plan) > 0, d.since()+lingerKill
	d.faults.plan = nil
	err := d.work(ctx, func(ctx context.Context, e balancer.Event) {
		if e.Kind == balancer.TookOver {
			d.tell(e)
		}
		d.faults.note(ctx, e)
	}, func() bool {
		if harm && d.since() >= due {
			due, d.faults.plan = d.since()+lingerKill, []fault{{kind: "kill"}}
		}
		return false
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
