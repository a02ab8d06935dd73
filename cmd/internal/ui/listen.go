package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// DefaultAddr is where the page is shown when nothing else is said.
const DefaultAddr = "127.0.0.1:8087"

// What is expected of a token.
const (
	minToken = 16
	maxToken = 4 << 10
)

// Access says where the page is shown, and to whom.
type Access struct {
	Addr      string // host and port; port 0 is one of the system's choice
	AddrFlag  string // the flag that names it, for errors
	TokenFile string // the file that holds the token; empty: none is asked for
	CertFile  string // with KeyFile: TLS is spoken
	KeyFile   string
}

// Flags declares the flags.
func (a *Access) Flags(f *flag.FlagSet) {
	a.AddrFlag = "--listen"
	f.StringVar(&a.Addr, "listen", DefaultAddr, "the `address` to show the page at; port 0 is one of the system's "+
		"choice;\nother than loopback needs --token-file, --tls-cert and --tls-key, or both")
	f.StringVar(&a.TokenFile, "token-file", "",
		"a `file` that holds the token that every browser is asked for")
	f.StringVar(&a.CertFile, "tls-cert", "", "a `file` with the certificate, to speak TLS")
	f.StringVar(&a.KeyFile, "tls-key", "", "the `file` with its key")
}

// Check refuses what would show the page, or more, to whom it may not be shown. It reads no file
// and looks no name up.
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
			"--tls-key, or both; or listen on 127.0.0.1 and come by an SSH tunnel", a.AddrFlag, a.Addr)
	case allowBreak && a.TokenFile == "":
		return fmt.Errorf("--allow-break on %s, which other machines may reach, needs --token-file",
			a.Addr)
	}
	return nil
}

// Local reports whether only this machine can reach the page.
func (a Access) Local() bool {
	host, _, _ := net.SplitHostPort(a.Addr) // what cannot be split is no loopback
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// token reads the file of the token.
func (a Access) token() (string, error) {
	if a.TokenFile == "" {
		return "", nil
	}
	f, err := os.Open(a.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: %w", err)
	case len(text) > maxToken:
		return "", fmt.Errorf("--token-file has more than %d bytes", maxToken)
	case len(token) < minToken:
		return "", fmt.Errorf("--token-file holds %d characters, at least %d are needed: openssl rand -hex 16",
			len(token), minToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) }):
		return "", errors.New("--token-file holds characters that cannot be typed: openssl rand -hex 16")
	}
	return token, nil
}

// Run shows the page until ctx ends. It tells ready the address once it is there. What access says
// goes into cfg: Token, Loopback and Secure.
//
// Errors: those of Check and New; a file that cannot be read; an address that is in use, which
// names the flag.
func Run(ctx context.Context, access Access, cfg Config, ready func(url string)) error {
	if err := access.Check(cfg.AllowBreak); err != nil {
		return err
	}
	cfg.Loopback, cfg.Secure = access.Local(), access.CertFile != ""
	var err error
	if cfg.Token, err = access.token(); err != nil {
		return err
	}
	scheme, config := "http", (*tls.Config)(nil)
	if cfg.Secure {
		pair, err := tls.LoadX509KeyPair(access.CertFile, access.KeyFile)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		scheme, config = "https", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
			NextProtos: []string{"h2", "http/1.1"}}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", access.Addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %s is in use by another program: give another port, or port 0 for one of the "+
			"system's choice", access.AddrFlag, access.Addr)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", access.AddrFlag, err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	return serve(ctx, listener, cfg, func() { ready(scheme + "://" + listener.Addr().String() + "/") })
}

// serve shows the page on a listener, which it closes.
func serve(ctx context.Context, on net.Listener, cfg Config, ready func()) error {
	page, err := New(ctx, cfg)
	if err != nil {
		return errors.Join(err, on.Close())
	}
	defer page.Close()
	server := &http.Server{
		Handler: page, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(on) }() // ends with Close
	ready()
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = server.Close()
		<-ended
	}
	return err
}
