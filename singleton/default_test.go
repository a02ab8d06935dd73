package singleton

import (
	"testing"

	"mongodlm/internal/test/assert"
)

// It tries to break: the switch of a loop is in config.settings, whose schema refuses it.
func TestSettingsCollection_HasItsOwnName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, SettingsCollection, "distlock_settings", "the settings are in %s, want %s")
}
