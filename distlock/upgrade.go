package distlock

import (
	"context"

	"mongodlm/catalog"
)

// warnOfUpgrade logs a warning if an upgrade of the server will delete the collections.
func (m *Manager) warnOfUpgrade(ctx context.Context, store catalog.Catalog) {
	if s, ok := store.(interface {
		UpgradeDrops(ctx context.Context) string
	}); ok {
		if warning := s.UpgradeDrops(ctx); warning != "" {
			m.log.Warn().Str("problem", warning).Msg("upgrade")
		}
	}
}
