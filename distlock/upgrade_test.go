package distlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// A shardedConfig simulates a config server. An upgrade of that server would delete the
// collections. The server refuses to create indexes, and reports an index that deletes locks.
type shardedConfig struct{ catalog.Catalog }

func (c shardedConfig) Hello(ctx context.Context) (catalog.Server, error) {
	s, err := c.Catalog.Hello(ctx)
	s.ConfigServer = true
	return s, err
}

func (shardedConfig) UpgradeDrops(context.Context) string { return "the upgrade deletes all" }

func (shardedConfig) Prepare(context.Context) ([]string, error) {
	return []string{`index "x_1" deletes documents by their age`}, &catalog.PrivilegeError{}
}

// On a config server, New accepts a database other than the database named config. It logs a
// warning if an upgrade of the server deletes the collections, and a warning about an index that
// deletes locks.
func TestNew_ConfigServer_WarnsAndTriesTheDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log assert.Log
		m := assert.Value(distlock.New(t.Context(), distlock.Config{
			Catalog: shardedConfig{w.Mem}, Database: "distlock",
			Takeover: time.Hour, Logger: zerolog.New(&log),
		}))(t)
		time.Sleep(time.Minute)
		assert.Must(t, m.Close(t.Context()))
		for _, want := range []string{"the upgrade deletes all", "deletes documents"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in %s", want, log.String())
			}
		}
	})
}
