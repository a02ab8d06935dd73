package mongocatalog

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// UpgradeDrops returns a warning if an upgrade of MongoDB will delete the collections of this store
// with their documents, else "". The warning has the steps before the upgrade. On a config server
// setFeatureCompatibilityVersion "7.0" drops config.lockpings, then config.locks. On a config
// server of MongoDB 7 UpgradeDrops sends one command. It also warns if the user may not read the
// version. On another server it does no I/O after the first Hello.
//
// Source: dropDistLockCollections in set_feature_compatibility_version_command.cpp, from 6.2 on.
func (c *Catalog) UpgradeDrops(ctx context.Context) (warning string) {
	s, err := c.known(ctx)
	if err != nil || !s.ConfigServer || c.database != DefaultDatabase {
		return ""
	}
	feature := s.Version
	if major, _ := version(s.Version); major == 7 {
		feature = c.featureVersion(ctx)
	}
	if major, _ := version(feature); major >= 7 {
		return ""
	}
	return fmt.Sprintf("the upgrade of this config server to MongoDB 7.0 deletes %s.%s and %s.%s, held "+
		"locks included, so two processes may hold one lock until the next ping: before "+
		"setFeatureCompatibilityVersion \"7.0\" stop all processes that use them",
		DefaultDatabase, catalog.PingsCollection, DefaultDatabase, catalog.LocksCollection)
}

// featureVersion returns the server's feature compatibility version, or "" after an error.
func (c *Catalog) featureVersion(ctx context.Context) string {
	var text string
	o := on("", "getParameter", "read the feature compatibility version")
	_ = c.run(ctx, o, func(ctx context.Context) error {
		reply, err := c.db.Client().Database("admin").RunCommand(ctx, bson.D{
			{Key: "getParameter", Value: int32(1)},
			{Key: "featureCompatibilityVersion", Value: int32(1)},
		}).Raw()
		text, _ = reply.Lookup("featureCompatibilityVersion", "version").StringValueOK()
		return err
	})
	return text
}
