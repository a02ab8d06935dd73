package mongocatalog_test

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}

// If the driver cannot open a connection, a write fails with ErrUnavailable, because it was not
// sent. If an open connection breaks during a write, the outcome of the write is unknown.
func TestCatalog_NoConnection_IsCertainlyNotApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		connect func(net.Conn) (net.Conn, error) // the connection for the commands
		want    string
	}{
		"refused": {func(conn net.Conn) (net.Conn, error) {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}, unavailable},
		"closed during the handshake": {func(conn net.Conn) (net.Conn, error) {
			_ = conn.Close()
			return conn, nil
		}, unavailable},
		"closed with the command on it": {func(conn net.Conn) (net.Conn, error) {
			return conn, nil
		}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(bson.Raw) bson.D { return nil })
			var monitored atomic.Bool
			client, err := mongo.Connect(options.Client().
				ApplyURI("mongodb://" + s.listener.Addr().String() +
					"/?directConnection=true&serverMonitoringMode=poll").
				SetDialer(dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, network, address)
					if err == nil && !monitored.CompareAndSwap(false, true) {
						return c.connect(conn)
					}
					return conn, err
				})))
			assert.Must(t, err)
			t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
			store, err := mongocatalog.New(client, mongocatalog.Options{})
			assert.Must(t, err)
			_, err = on(store).Acquire(t.Context(), request())
			if got := verdict(err); err == nil || got != c.want {
				t.Errorf("want %s, got %s: %v", c.want, got, err)
			}
			if n := len(s.sent()); c.want == unavailable && n != 0 {
				t.Errorf("received %d commands", n)
			}
		})
	}
}

// A user without a password, as for X.509, has no secret. The words of an error stay as they are.
func TestWithoutSecrets_UserWithoutPassword_ChangesNothing(t *testing.T) {
	t.Parallel()
	const text = "no server answers"
	for _, uri := range []string{"mongodb://s@h/", "mongodb://h/"} {
		if got := mongocatalog.WithoutSecrets(text, uri); got != text {
			t.Errorf("%s: %q", uri, got)
		}
	}
}
