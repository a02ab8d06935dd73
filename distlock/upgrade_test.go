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

// shardedConfig simulates a config server that is also a shard. An upgrade of that server would
// delete its collections.
type shardedConfig struct{ *memcatalog.Catalog }

func (c shardedConfig) Hello(ctx context.Context) (catalog.Server, error) {
	s, err := c.Catalog.Hello(ctx)
	s.ConfigServer = true
	return s, err
}

func (shardedConfig) UpgradeDrops(context.Context) string { return "the upgrade deletes all" }

// New accepts a separate database on a config server, and warns of an upgrade that would delete its
// collections.
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

// deniedStore may not create indexes. It reports an index that deletes locks.
type deniedStore struct{ catalog.Catalog }

func (deniedStore) Prepare(context.Context) ([]string, error) {
	return []string{`index "x_1" deletes documents by their age`}, &catalog.PrivilegeError{}
}

// A process that may not create indexes still warns of an index that deletes locks.
func TestStore_Prepare_Denied_WarnsOfTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var out assert.Log
		m := assert.Value(distlock.New(t.Context(),
			distlock.Config{Logger: zerolog.New(&out), Catalog: deniedStore{w.mem}}))(t)
		time.Sleep(time.Minute)
		assert.NoErr(t, m.Close(t.Context()))
		if !strings.Contains(out.String(), "deletes documents") {
			t.Errorf("no warning of the index: %s", out.String())
		}
	})
}
