package mongocatalog_test

import (
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// UpgradeDrops returns a warning only if an upgrade of the server deletes the locks. It sends at
// most one command.
func TestUpgradeDrops_ConfigServerBelow7_Warns(t *testing.T) {
	t.Parallel()
	config := bson.D{e("configsvr", int32(2))}
	for name, c := range map[string]struct {
		version, feature, database string
		hello                      bson.D
		warns                      bool
		sent                       int
	}{
		"4.4":                       {"4.4.29", "", "config", config, true, 0},
		"6.0":                       {"6.0.16", "", "config", config, true, 0},
		"7.0, not upgraded":         {"7.0.5", "6.0", "config", config, true, 1},
		"7.0, and may not be asked": {"7.0.5", "", "config", config, true, 1},
		"7.0, upgraded":             {"7.0.5", "7.0", "config", config, false, 1},
		"8.0":                       {"8.0.1", "", "config", config, false, 0},
		"a shard's own database":    {"8.0.1", "", "distlock", config, false, 0},
		"a replica set":             {"6.0.16", "", "config", nil, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(bson.Raw) bson.D {
				if c.feature == "" {
					return failure(13, "not authorized")(nil)
				}
				version := bson.D{e("version", c.feature)}
				return bson.D{e("ok", 1.0), e("featureCompatibilityVersion", version)}
			})
			s.hello, s.version = c.hello, c.version
			store := assert.Value(mongocatalog.New(s.client(t),
				mongocatalog.Options{Database: c.database}))(t)
			warning := store.UpgradeDrops(t.Context())
			if got := strings.Contains(warning, `setFeatureCompatibilityVersion "7.0"`); got != c.warns {
				t.Errorf("warns %v, want %v: %q", got, c.warns, warning)
			}
			assert.Equal(t, len(s.sent()), c.sent, "sent %d commands, want %d")
		})
	}
}
