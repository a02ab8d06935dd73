package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/cmd/internal/ui"
	"mongodlm/distlock"
)

// pageInterval is short, as the rounds of the demo are.
const pageInterval = 300 * time.Millisecond

// access is where the page is shown.
func (o opts) access() ui.Access { return ui.Access{Addr: o.http, AddrFlag: "--http"} }

// checkPage refuses what other machines could reach: the demo has no flags for tokens and certificates.
func (o opts) checkPage() error {
	if o.http == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.http); err == nil && !o.access().Local() {
		return fmt.Errorf("--http is %q, which other machines may reach: give a loopback address, or use "+
			"\"distlock ui\", which asks for a token or speaks TLS", o.http)
	}
	return o.access().Check(false)
}

// showPage shows the locks as a page until ctx ends. It returns when the page is there; wait returns when it
// has gone.
func (d *demo) showPage(ctx context.Context) (url string, wait func() error, err error) {
	inspector, err := distlock.NewInspector(ctx, distlock.Config{
		Client: d.meta.client, Database: d.o.database, AllowConfigThroughMongos: true, Logger: zerolog.Nop(),
	})
	if err != nil {
		return "", nil, err
	}
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { // ends with ctx; wait waits for it
		ended <- ui.Run(ctx, d.o.access(), ui.Config{
			Inspector: inspector, Client: d.meta.client, Hosts: d.server, Database: d.o.database, Interval: pageInterval,
		}, func(url string) { ready <- url })
	}()
	select {
	case url = <-ready:
		return url, func() error { return <-ended }, nil
	case err = <-ended:
		return "", nil, err
	}
}

// withPage plays with a page beside it, which stays after the report until the demo is interrupted.
func (d *demo) withPage(ctx context.Context, play func() (bool, error)) (bool, error) {
	if d.o.http == "" {
		return play()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	url, wait, err := d.showPage(ctx)
	if err != nil {
		return false, err
	}
	d.say(0, "page", url)
	ok, err := play()
	if err == nil {
		fmt.Fprintf(d.out, "\nthe page stays at %s until this is interrupted\n", url)
		<-ctx.Done()
	}
	cancel()
	return ok, errors.Join(err, wait())
}
