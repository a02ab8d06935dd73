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
