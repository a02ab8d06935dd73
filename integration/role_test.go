package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/role"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/mongodtest"
)

// A user with the privileges of package role can use each feature, without a warning in the log.
// TestRole_IsTheLeast and TestDoctor_RealServer_ChecksThePrintedRole of cmd/distlock check that
// each privilege is needed.
func TestRole_OnARealServer_IsEnough(t *testing.T) {
	d := startSecured(t, mongodtest.Options{ReplicaSet: 1})
	d.command(role.Command("least", "distlock", role.Of("", role.Locks, role.Lines,
		role.Transactions, role.History, role.Listings, role.Breaking)))
	d.user("least", bson.D{field("role", "least"), field("db", "admin")})
	var log assert.Log
	cfg := userConfig(d.as("least"))
	cfg.Takeover, cfg.CommandTimeout = 2*time.Minute, 20*time.Second // creating indexes is slow
	cfg.Logger = zerolog.New(&log).Level(zerolog.WarnLevel)
	client := privateClient(t, options.Client().ApplyURI(cfg.URI))
	past := assert.Value(history.New(client, "distlock", history.Options{Logger: cfg.Logger}))(t)
	cfg.Observer = past
	m := newManager(t, cfg)
	ctx := t.Context()
	for i, opt := range []distlock.Option{
		distlock.Why("alone"), distlock.Shared(), distlock.Permits(2), distlock.Lease(time.Minute),
	} {
		guard := assert.Value(m.Lock(fmt.Sprint("job ", i)).TryLock(ctx, opt))(t)
		assert.NoErr(t, errors.Join(guard.Verify(ctx),
			guard.InTransaction(ctx, func(context.Context) error { return nil }), guard.Release()))
	}
	line := m.Lock("line")
	guard := assert.Value(line.TryLock(ctx))(t)
	done := make(chan turn, 1)
	go func() { // ends with the release below
		g, err := line.Lock(ctx)
		done <- turn{g, err}
	}()
	inspector := m.Inspector()
	eventually(t, turnLimit, "the caller is queued", func() bool {
		_, line, err := inspector.Holder(ctx, "line")
		return err == nil && len(line) > 0
	})
	wantReleased(t, guard)
	wantReleased(t, wantTurn(t, done))
	guard = assert.Value(m.Lock("broken").TryLock(ctx))(t)
	assert.Value(inspector.Break(ctx, "broken", guard.Fence(), "a test", guard.Session()))(t)
	for _, err := range inspector.Locks(ctx) {
		assert.NoErr(t, err)
	}
	store := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: "distlock"}))(t)
	assert.Value(store.Prepare(ctx))(t)
	old := assert.Value(store.OldPings(ctx, time.Now().Add(-time.Hour)))(t)
	assert.Value(store.Prune(ctx, append(old, catalog.OldPing{Process: "nobody"})))(t)
	assert.NoErr(t, errors.Join(m.Close(ctx), past.Close(ctx)))
	_, _, err := history.Read(ctx, client, "distlock", history.Query{})
	assert.NoErr(t, err)
	for line := range strings.Lines(log.String()) {
		expected := func(message string) bool { return strings.Contains(line, `"message":"`+message+`"`) }
		if !expected("broken by hand") && !expected("lost") && !expected("ping loop is late") {
			t.Error(line)
		}
	}
}
