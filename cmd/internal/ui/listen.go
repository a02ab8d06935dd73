package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// DefaultAddr is the default address of the page.
const DefaultAddr = "127.0.0.1:8087"

// Access configures the address of the page and its authentication.
type Access struct {
	Addr      string // host and port; the system chooses the port for 0
	AddrFlag  string // the flag with the address, for errors
	TokenFile string // the file with the tokens; empty means that no token is required
	CertFile  string // with KeyFile: enables TLS
	KeyFile   string
}

// Flags declares --listen, --token-file, --tls-cert and --tls-key in f.
func (a *Access) Flags(f *pflag.FlagSet) {
	a.AddrFlag = "--listen"
	f.StringVar(&a.Addr, "listen", DefaultAddr,
		"the `address` of the page; port 0 selects a free port;\nan address other than loopback "+
			"needs --token-file, --tls-cert and --tls-key, or both")
	f.StringVar(&a.TokenFile, "token-file", "", "a `file` with the token that every browser must "+
		"present, or with a line \"name: token\"\nfor each user")
	f.StringVar(&a.CertFile, "tls-cert", "", "a `file` with the certificate for TLS")
	f.StringVar(&a.KeyFile, "tls-key", "", "the `file` with its key")
}

// Check returns an error for an invalid configuration. If other machines can reach the page, Check
// requires a token file or TLS. If allowBreak is also set, Check requires a token file. Check opens
// no file and resolves no host name.
func (a Access) Check(allowBreak bool) error {
	_, port, err := net.SplitHostPort(a.Addr)
	if err != nil {
		return fmt.Errorf("%s is %q: give a host and a port, such as %s", a.AddrFlag, a.Addr, DefaultAddr)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%s has port %q: give a number from 0 to 65535", a.AddrFlag, port)
	}
	switch {
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("--tls-cert and --tls-key go together: give both or none")
	case a.Local():
		return nil
	case a.TokenFile == "" && a.CertFile == "":
		return fmt.Errorf("%s is %q, which other machines may reach: give --token-file, --tls-cert and "+
			"--tls-key, or both; or listen on 127.0.0.1 and use an SSH tunnel", a.AddrFlag, a.Addr)
	case allowBreak && a.TokenFile == "":
		return fmt.Errorf("--allow-break on %s, which other machines may reach, needs --token-file",
			a.Addr)
	}
	return nil
}

// Local reports whether only this machine can reach the page.
func (a Access) Local() bool {
	_, _, err := net.SplitHostPort(a.Addr) // an invalid address is not loopback
	return err == nil && onLoopback(a.Addr)
}

// Cautions returns warnings to the operator about this configuration.
func (a Access) Cautions(allowBreak bool) (all []string) {
	if info, err := os.Stat(a.TokenFile); err == nil && info.Mode().Perm()&0o077 != 0 {
		all = append(all, "other users of this machine may read the token file: chmod 600 "+
			strconv.QuoteToGraphic(a.TokenFile))
	}
	switch {
	case a.Local():
	case a.TokenFile == "":
		all = append(all, "every client that reaches "+a.Addr+" may read the whole page: TLS does not "+
			"identify users, --token-file does")
	case a.CertFile == "" && allowBreak:
		all = append(all, "the token is sent over the network in plain text, and anyone who reads it "+
			"there may break locks: give --tls-cert and --tls-key")
	case a.CertFile == "":
		all = append(all, "the token is sent over the network in plain text: give --tls-cert and "+
			"--tls-key")
	}
	return all
}

// Run serves the page until ctx ends. After Run begins to listen, it calls the given function with
// the URL of the page. Run sets the fields Tokens, Loopback and Secure of cfg from access.
//
// Run returns the errors of Check. It also returns an error if it cannot read a file or cannot
// listen on the address. Such an error names the flag.
func Run(ctx context.Context, access Access, cfg Config, ready func(url string)) error {
	if err := access.Check(cfg.AllowBreak); err != nil {
		return err
	}
	cfg.Loopback, cfg.Secure = access.Local(), access.CertFile != ""
	var err error
	if cfg.Tokens, err = access.tokens(); err != nil {
		return err
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with ctx
	}
	scheme, serve := "http", server.Serve
	if cfg.Secure {
		pair, err := tls.LoadX509KeyPair(access.CertFile, access.KeyFile)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12}
		scheme, serve = "https", func(on net.Listener) error { return server.ServeTLS(on, "", "") }
	}
	page := New(ctx, cfg)
	defer page.Close()
	server.Handler = page
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", access.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %s is in use by another program: give another port, or port 0 for a "+
			"free port", access.AddrFlag, access.Addr)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", access.AddrFlag, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(listener) }() // ends with Close
	ready(scheme + "://" + listener.Addr().String() + "/")
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = server.Close()
		<-ended
	}
	return err
}
