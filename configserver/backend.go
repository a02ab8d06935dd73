package configserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/FerretDB/FerretDB/ferretdb"
	"github.com/rs/zerolog"
)

// making serializes the calls of ferretdb.New, because ferretdb.New writes to global variables.
var making sync.Mutex

// A backend is a FerretDB that runs in this process and listens on a Unix socket.
type backend struct {
	private string // folder of the socket; only this user has access
	stop    context.CancelFunc
	stopped chan struct{} // closed when FerretDB has returned
}

// startBackend runs a FerretDB on the SQLite files in dir. If volatile is set, FerretDB does not
// sync to the disk. The argument log receives only the errors of FerretDB.
//
// The embedded FerretDB contains no telemetry reporter and writes no state file.
func startBackend(dir string, volatile bool, log zerolog.Logger) (*backend, error) {
	root := os.TempDir()
	if len(root) > 65 { // the path of a Unix socket has at most 103 bytes on some systems
		root = "/tmp"
	}
	private, err := os.MkdirTemp(root, "mongodlm-") // with mode 0700
	if err != nil {
		return nil, fmt.Errorf("configserver: folder for the socket, set TMPDIR to a short path: %w", err)
	}
	files := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(dir) + "/"}
	if volatile {
		files.RawQuery = "_pragma=synchronous(off)"
	}
	b := &backend{private: private, stopped: make(chan struct{})}
	log = log.Level(max(log.GetLevel(), zerolog.ErrorLevel))
	making.Lock()
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{Unix: b.socket()},
		Logger:    slog.New(zerolog.NewSlogHandler(log)),
		Handler:   "sqlite",
		SQLiteURL: files.String(),
	})
	making.Unlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configserver: start FerretDB on %q: %w", dir, err),
			os.RemoveAll(private))
	}
	running, stop := context.WithCancel(context.Background())
	b.stop = stop
	go func() { // ends when close calls stop
		defer close(b.stopped)
		_ = db.Run(running) // Run always returns nil
	}()
	return b, nil
}

func (b *backend) socket() string { return filepath.Join(b.private, "ferretdb.sock") }

func (b *backend) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.socket())
}

// close stops FerretDB and waits until it has ended. If no connection is open, FerretDB ends
// immediately. Otherwise it ends after its timeout of three seconds.
func (b *backend) close() error {
	b.stop()
	<-b.stopped
	return os.RemoveAll(b.private)
}
