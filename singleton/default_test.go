package singleton

import (
	"testing"

	"mongodlm/internal/test/assert"
)

// The settings of loops are not in config.settings, whose schema refuses them.
func TestSettingsCollection_HasItsOwnName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, SettingsCollection, "distlock_settings", "the settings are in %s, want %s")
}
