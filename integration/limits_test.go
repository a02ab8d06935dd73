package integration_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// If the server stops answering during a transaction, InTransaction returns when its context ends,
// without waiting for the abort.
func TestLimits_ServerFallsSilentInTransaction_ReturnsInTime(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset"), func(t *testing.T, w *world) {
		link := w.d.through(t)
		m := w.startUnclosed(t, func(cfg *distlock.Config) {
			slow(cfg)
			cfg.URI, cfg.Client, cfg.PingClient = link.uri(), nil, nil
		})
		g := w.mustTry(t, m, w.name("own"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var silent time.Time
		err := g.InTransaction(ctx, func(ctx context.Context) error {
			app := mongo.SessionFromContext(ctx).Client().Database(w.db.Name()).Collection("work")
			if _, err := app.InsertOne(ctx, bson.D{{Key: "by", Value: "test"}}); err != nil {
				return err
			}
			link.set(stalling)
			silent = time.Now()
			time.AfterFunc(time.Second, cancel)
			return assert.Err(app.InsertOne(ctx, bson.D{{Key: "by", Value: "test"}}))
		})
		if took := time.Since(silent); err == nil || took > 20*time.Second { // an abort may take a minute
			t.Errorf("InTransaction returned after %v with %v, want 1s", took, err)
		}
		closing, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_ = m.Close(closing) // the server is silent
	})
}

// D7, G11: If the server cannot be reached or never answers, New returns an error within the
// command timeout. The error contains the host, but not the password.
func TestNew_NoServerOrNoAnswer_SaysSoInTime(t *testing.T) {
	t.Parallel()
	silent := assert.Value(net.Listen("tcp", "127.0.0.1:0"))(t) // the system accepts connections
	t.Cleanup(func() { _ = silent.Close() })
	for _, addr := range []string{"127.0.0.1:1", silent.Addr().String()} {
		begun := time.Now()
		_, err := distlock.New(t.Context(), distlock.Config{
			URI: "mongodb://someone:" + password + "@" + addr + "/", CommandTimeout: time.Second,
		})
		wantErr(t, err, distlock.ErrUnavailable)
		if took := time.Since(begun); took > 20*time.Second { // nominally one second
			t.Errorf("it took %v", took)
		}
		if !strings.Contains(err.Error(), addr) {
			t.Errorf("the error does not name %s: %v", addr, err)
		}
		wantNoSecret(t, err.Error())
	}
}
