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
	"go.mongodb.org/mongo-driver/v2/bson"
)

// making serializes the calls of ferretdb.New, because ferretdb.New writes to global variables.
var making sync.Mutex

// A backend is a FerretDB that runs in this process and listens on a Unix socket.
type backend struct {
	private string // folder of the socket; only this user has access
	stop    context.CancelFunc
	stopped chan struct{} // closed when FerretDB has returned
}

// startBackend runs a FerretDB on the SQLite files in dir, and waits until FerretDB replies. If
// volatile is set, FerretDB does not sync to the disk.
//
// The embedded FerretDB contains no telemetry reporter and writes no state file. The log shows its
// errors as warnings.
func startBackend(
	ctx context.Context, dir string, volatile bool, log zerolog.Logger,
) (*backend, error) {
	private, err := os.MkdirTemp("", "mongodlm-") // with mode 0700
	if err != nil {
		return nil, fmt.Errorf("configserver: folder for the socket: %w", err)
	}
	files := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(dir) + "/"}
	if volatile {
		files.RawQuery = "_pragma=synchronous(off)"
	}
	b := &backend{private: private, stopped: make(chan struct{})}
	making.Lock()
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{Unix: b.socket()},
		Logger:    slog.New(errorsOnly{zerolog.NewSlogHandler(log)}),
		Handler:   "sqlite",
		SQLiteURL: files.String(),
	})
	making.Unlock()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configserver: start FerretDB on %q: %w", dir, err),
			os.RemoveAll(private))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go func() { // ends when close calls stop
		defer close(b.stopped)
		_ = db.Run(running) // Run always returns nil
	}()
	if err := b.ping(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("configserver: FerretDB does not answer: %w", err),
			b.close())
	}
	return b, nil
}

func (b *backend) socket() string { return filepath.Join(b.private, "ferretdb.sock") }

func (b *backend) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.socket())
}

func (b *backend) ping(ctx context.Context) error {
	conn, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // the error of Close does not matter
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	document, err := bson.Marshal(bson.D{{Key: "ping", Value: 1}, {Key: "$db", Value: "admin"}})
	if err != nil {
		return err
	}
	if _, err = conn.Write(newMsg(1, document)); err == nil {
		_, err = readFrame(conn)
	}
	return errors.Join(err, ctx.Err())
}

// close stops FerretDB and waits until it has ended. If no connection is open, FerretDB ends
// immediately. Otherwise it ends after its timeout of three seconds.
func (b *backend) close() error {
	b.stop()
	<-b.stopped
	return os.RemoveAll(b.private)
}

// errorsOnly drops the log lines of FerretDB below level error. It logs errors as warnings, because
// the client also receives them in its reply.
type errorsOnly struct{ slog.Handler }

func (h errorsOnly) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (h errorsOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelWarn
	return h.Handler.Handle(ctx, r)
}

func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(attrs)}
}

func (h errorsOnly) WithGroup(name string) slog.Handler {
	return errorsOnly{h.Handler.WithGroup(name)}
}
