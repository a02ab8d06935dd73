package distlock_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// A shardedConfig simulates a config server. An upgrade of that server would delete the
// collections.
type shardedConfig struct{ *memcatalog.Catalog }

func (c shardedConfig) Hello(ctx context.Context) (catalog.Server, error) {
	s, err := c.Catalog.Hello(ctx)
	s.ConfigServer = true
	return s, err
}

func (shardedConfig) UpgradeDrops(context.Context) string { return "the upgrade deletes all" }

// On a config server, New accepts a database other than the database named config. It logs a
// warning if an upgrade of the server deletes the collections.
func TestNew_ConfigServer_WarnsAndTriesTheDatabase(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := assert.Value(distlock.New(t.Context(), distlock.Config{
		Catalog: shardedConfig{memcatalog.New(memcatalog.Options{})}, Database: "distlock",
		Takeover: time.Hour, Logger: zerolog.New(&log),
	}))(t)
	assert.Must(t, m.Close(context.Background()))
	if !strings.Contains(log.String(), "the upgrade deletes all") {
		t.Errorf("no warning in %s", log.String())
	}
}

// A deniedStore refuses to create indexes, and reports an existing index that deletes locks.
type deniedStore struct{ catalog.Catalog }

func (deniedStore) Prepare(context.Context) ([]string, error) {
	return []string{`index "x_1" deletes documents by their age`}, &catalog.PrivilegeError{}
}

// If a process may not create indexes, it still logs a warning about an index that deletes locks.
func TestStore_Prepare_Denied_WarnsOfTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var out assert.Log
		m := assert.Value(distlock.New(t.Context(),
			distlock.Config{Logger: zerolog.New(&out), Catalog: deniedStore{w.Mem}}))(t)
		time.Sleep(time.Minute)
		assert.NoErr(t, m.Close(t.Context()))
		if !strings.Contains(out.String(), "deletes documents") {
			t.Errorf("no warning of the index: %s", out.String())
		}
	})
}
