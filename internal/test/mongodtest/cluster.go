package mongodtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Cluster is a sharded cluster with a config server and a mongos. The config server and each
// shard are replica sets with one member. The balancer is off, so chunks move only by commands of a
// test. Only URI is safe for concurrent use.
type Cluster struct {
	// Shards contains the shards. The name of a shard is the name of its replica set.
	Shards []*Deployment
	config *Deployment
	router *Deployment
}

// StartCluster starts a sharded cluster and waits until it accepts writes. The program p must come
// from [FindCluster]. The caller must close the cluster.
func StartCluster(ctx context.Context, p Program, shards int) (_ *Cluster, err error) {
	c := &Cluster{Shards: make([]*Deployment, shards)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	errs := make([]error, shards+1)
	var started sync.WaitGroup
	shard := Options{ReplicaSet: 1, ShardServer: true}
	config := Options{ReplicaSet: 1, ConfigServer: true}
	for i := range shards {
		started.Go(func() { c.Shards[i], errs[i] = Start(ctx, p, shard) })
	}
	started.Go(func() { c.config, errs[shards] = Start(ctx, p, config) })
	started.Wait()
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if c.router, err = Start(ctx, p, Options{configDB: c.config.seeds()}); err != nil {
		return c, err
	}
	for _, s := range c.Shards {
		if err := c.Run(ctx, bson.D{{Key: "addShard", Value: s.seeds()}}); err != nil {
			return c, err
		}
	}
	return c, c.Run(ctx, bson.D{{Key: "balancerStop", Value: 1}})
}

// URI returns the connection string of the mongos.
func (c *Cluster) URI() string { return "mongodb://" + c.router.nodes[0].addr + "/" }

// Run sends a command to the database admin of the mongos.
func (c *Cluster) Run(ctx context.Context, command bson.D) error {
	if err := c.router.nodes[0].run(ctx, command).Err(); err != nil {
		return fmt.Errorf("mongodtest: %s: %w", command[0].Key, err)
	}
	return nil
}

// Shard shards a collection by a hash of _id, so that each shard gets a part of the documents.
func (c *Cluster) Shard(ctx context.Context, database, collection string) error {
	return errors.Join(
		c.Run(ctx, bson.D{{Key: "enableSharding", Value: database}}),
		c.Run(ctx, bson.D{
			{Key: "shardCollection", Value: database + "." + collection},
			{Key: "key", Value: bson.D{{Key: "_id", Value: "hashed"}}},
		}))
}

// Close kills all programs of the cluster and removes their data.
func (c *Cluster) Close() error {
	var errs []error
	for _, d := range append([]*Deployment{c.router, c.config}, c.Shards...) {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}
