package claim

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/internal/rows"
)

// MissingIndexes returns, for each index that a queue asks for and that is missing, the command
// that creates it, for the shell; see [New]. It changes nothing and needs no Manager; of cfg it
// uses Field, Due, Sort, Key and KeepDone. Two commands at most; no bound but ctx.
//
// Errors: a *ConfigError; a *distlock.PrivilegeError; those of the driver.
func MissingIndexes(ctx context.Context, coll *mongo.Collection, cfg Config) ([]string, error) {
	queue, err := indexed(coll, cfg)
	if err != nil {
		return nil, err
	}
	return queue.Missing(ctx)
}

// CreateIndexes creates the indexes that MissingIndexes tells of. It needs no Manager. Two commands
// at most, and one for each index; no bound but ctx, and a collection of many rows takes its time.
//
// Errors: as MissingIndexes, with the command that creates what is still missing.
func CreateIndexes(ctx context.Context, coll *mongo.Collection, cfg Config) error {
	queue, err := indexed(coll, cfg)
	if err != nil {
		return err
	}
	return queue.Prepare(ctx)
}

// indexed is the queue as far as its indexes go.
func indexed(coll *mongo.Collection, cfg Config) (*rows.Mongo, error) {
	cfg = cfg.withDefaults()
	list := cfg.problems()
	if coll == nil {
		list = append(list, "the collection is nil")
	}
	if list != nil {
		return nil, &ConfigError{Problems: list}
	}
	return rows.NewMongo(coll, cfg.Field, nil, cfg.Sort).Due(cfg.Due).Keeps(cfg.KeepDone > 0).
		Keyed(cfg.Key, cfg.KeyLetsGo), nil
}
