package balancer

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/cmd/balancer-demo/internal/cluster"
)

// ErrNotEmpty is returned by Load when the database already has a cluster.
var ErrNotEmpty = errors.New("balancer: the database holds a cluster already")

// ErrStale is returned by Move when the chunk has left the source shard, or has a higher fence.
// This process may no longer move the chunk.
var ErrStale = errors.New("balancer: a newer holder was here")

// Store reads and writes the metadata of one cluster in one database. It is safe for concurrent
// use.
type Store struct {
	db     *mongo.Database
	prefix string
}

// NewStore returns the Store of a database. On a config server the collections' names have a
// prefix, because the server's own metadata has the same names and must not change.
func NewStore(client *mongo.Client, database string, configServer bool) *Store {
	majority := options.Database().SetWriteConcern(writeconcern.Majority())
	s := &Store{db: client.Database(database, majority)}
	if configServer {
		s.prefix = "demo_"
	}
	return s
}

func (s *Store) rows(name string) *mongo.Collection { return s.db.Collection(s.prefix + name) }

// Load writes a cluster into the empty database. If the database has a cluster, Load changes
// nothing and returns ErrNotEmpty.
func (s *Store) Load(ctx context.Context, c cluster.Cluster) error {
	parts := map[string]any{cluster.ShardsCollection: c.Shards,
		cluster.CollectionsCollection: c.Collections, cluster.ChunksCollection: c.Chunks}
	for name := range parts {
		n, err := s.rows(name).CountDocuments(ctx, bson.M{}, options.Count().SetLimit(1))
		if err != nil {
			return wrap("load", err)
		}
		if n > 0 {
			return fmt.Errorf("%w: %s.%s is not empty; name another database", ErrNotEmpty, s.db.Name(),
				s.prefix+name)
		}
	}
	for name, documents := range parts {
		if _, err := s.rows(name).InsertMany(ctx, documents); err != nil {
			return wrap("load "+name, err)
		}
	}
	_, err := s.Tick(ctx)
	return err
}

// Read reads and checks the whole cluster.
func (s *Store) Read(ctx context.Context) (cluster.Cluster, error) {
	var c cluster.Cluster
	err := errors.Join(
		s.all(ctx, cluster.ShardsCollection, bson.M{}, &c.Shards),
		s.all(ctx, cluster.CollectionsCollection, bson.M{}, &c.Collections),
		s.all(ctx, cluster.ChunksCollection, bson.M{}, &c.Chunks))
	if err != nil {
		return cluster.Cluster{}, err
	}
	return cluster.Assemble(c)
}

func (s *Store) all(ctx context.Context, collection string, filter bson.M, to any) error {
	cursor, err := s.rows(collection).Find(ctx, filter)
	if err == nil {
		err = cursor.All(ctx, to)
	}
	return wrap("read "+collection, err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("balancer: %s: %w", what, err)
}

// Tick makes the server write a stamp that is larger than all earlier stamps. It returns the stamp.
func (s *Store) Tick(ctx context.Context) (bson.Timestamp, error) {
	var tick struct{ At bson.Timestamp }
	err := s.rows(cluster.RoundsCollection).FindOneAndUpdate(ctx,
		bson.M{"_id": cluster.TickID}, cluster.Tick(),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&tick)
	return stamped(tick.At, err, "tick")
}

// stamped returns at. It also returns an error if the command failed or its reply has no stamp.
func stamped(at bson.Timestamp, err error, what string) (bson.Timestamp, error) {
	if err == nil && at.IsZero() {
		err = errors.New("the server wrote no timestamp")
	}
	return at, wrap(what, err)
}

// Save stores the present state of a round.
func (s *Store) Save(ctx context.Context, r cluster.Round) error {
	_, err := s.rows(cluster.RoundsCollection).ReplaceOne(ctx, bson.M{"_id": r.ID}, r,
		options.Replace().SetUpsert(true))
	return wrap("record the round", err)
}

// Move moves one chunk and returns the server's stamp of the move. It returns ErrStale if the
// filter matched no chunk.
func (s *Store) Move(ctx context.Context, m cluster.Migration, fence int64,
	version bson.Timestamp) (bson.Timestamp, error) {
	var moved struct {
		At bson.Timestamp `bson:"movedAt"`
	}
	err := s.rows(cluster.ChunksCollection).FindOneAndUpdate(ctx,
		m.Filter(fence), m.Update(fence, version),
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&moved)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return bson.Timestamp{}, fmt.Errorf("%w: chunk %s", ErrStale, m.Chunk.Name())
	}
	return stamped(moved.At, err, "move chunk "+m.Chunk.Name())
}

// Record writes an entry of config.changelog.
func (s *Store) Record(ctx context.Context, c cluster.Change) error {
	_, err := s.rows(cluster.ChangelogCollection).InsertOne(ctx, c)
	return wrap("write the changelog", err)
}

// History reads the records of all rounds and moves.
func (s *Store) History(ctx context.Context) ([]cluster.Round, []cluster.Change, error) {
	var rounds []cluster.Round
	var changes []cluster.Change
	err := errors.Join(
		s.all(ctx, cluster.RoundsCollection, bson.M{"_id": bson.M{"$ne": cluster.TickID}}, &rounds),
		s.all(ctx, cluster.ChangelogCollection, bson.M{"what": cluster.Moved,
			"details.fence": bson.M{"$exists": true}}, &changes)) // only entries of the demo
	for _, r := range rounds {
		err = errors.Join(err, r.Validate())
	}
	return rounds, changes, err
}
