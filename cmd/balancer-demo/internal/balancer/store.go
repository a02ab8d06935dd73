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

// ErrNotEmpty is returned by Load if the database already has a cluster.
var ErrNotEmpty = errors.New("balancer: the database already has a cluster")

// ErrStale is returned by Move if the chunk has left the source shard, or has a higher fence than
// the move.
var ErrStale = errors.New("balancer: stale write")

// Store reads and writes the metadata of one cluster in one database. It is safe for concurrent
// use.
type Store struct {
	db     *mongo.Database
	prefix string
}

// NewStore returns the Store of a database. If configServer is true, the Store adds the prefix
// "demo_" to the names of its collections. The config server stores its own metadata under the
// names without the prefix, and this metadata must not change.
func NewStore(client *mongo.Client, database string, configServer bool) *Store {
	majority := options.Database().SetWriteConcern(writeconcern.Majority())
	s := &Store{db: client.Database(database, majority)}
	if configServer {
		s.prefix = "demo_"
	}
	return s
}

const chunks, rounds = "chunks", "rounds" // names of collections

func (s *Store) rows(name string) *mongo.Collection { return s.db.Collection(s.prefix + name) }

// Load writes a cluster into an empty database. If the database already has a cluster, Load changes
// nothing and returns ErrNotEmpty.
func (s *Store) Load(ctx context.Context, c cluster.Cluster) error {
	parts := map[string]any{"shards": c.Shards, "collections": c.Collections, chunks: c.Chunks}
	for name := range parts {
		n, err := s.rows(name).CountDocuments(ctx, bson.M{}, options.Count().SetLimit(1))
		if err != nil {
			return wrap("load", err)
		}
		if n > 0 {
			return fmt.Errorf("%w: %s.%s is not empty; use another database", ErrNotEmpty, s.db.Name(),
				s.prefix+name)
		}
	}
	for name, documents := range parts {
		if _, err := s.rows(name).InsertMany(ctx, documents); err != nil {
			return wrap("load "+name, err)
		}
	}
	return nil
}

// Read reads the whole cluster.
func (s *Store) Read(ctx context.Context) (c cluster.Cluster, err error) {
	err = errors.Join(s.all(ctx, "shards", &c.Shards), s.all(ctx, "collections", &c.Collections),
		s.all(ctx, chunks, &c.Chunks))
	return c, err
}

// all reads the documents of a collection in the order of _id, without the document of Tick.
func (s *Store) all(ctx context.Context, collection string, to any) error {
	cursor, err := s.rows(collection).Find(ctx, bson.M{"_id": bson.M{"$ne": tickID}},
		options.Find().SetSort(bson.M{"_id": 1}))
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

// tickID is the _id of the document that Tick updates. The document is in the collection of rounds.
const tickID = "tick"

var after = options.FindOneAndUpdate().SetReturnDocument(options.After)

// stampOf returns an operand of $currentDate that makes the server write a new Timestamp into the
// given field. The new Timestamp is larger than all earlier Timestamps. If the embedded config
// server restarts within one second, it does not guarantee this order.
func stampOf(field string) bson.M { return bson.M{field: bson.M{"$type": "timestamp"}} }

// Tick writes a new Timestamp of the server into the collection of rounds, and returns the
// Timestamp. It is larger than all earlier Timestamps.
func (s *Store) Tick(ctx context.Context) (bson.Timestamp, error) {
	var tick struct{ At bson.Timestamp }
	err := s.rows(rounds).FindOneAndUpdate(ctx, bson.M{"_id": tickID},
		bson.M{"$currentDate": stampOf("at")}, after, options.FindOneAndUpdate().SetUpsert(true)).
		Decode(&tick)
	return tick.At, wrap("tick", err)
}

// Save stores the record of a round. It replaces an earlier record of the same round.
func (s *Store) Save(ctx context.Context, r cluster.Round) error {
	_, err := s.rows(rounds).ReplaceOne(ctx, bson.M{"_id": r.ID}, r, options.Replace().SetUpsert(true))
	return wrap("record the round", err)
}

// Move moves one chunk and returns the server's Timestamp of the move. If the chunk has left its
// shard, or if a holder with a higher fence has moved the chunk, Move returns ErrStale.
//
// The fence protects only the chunks that a later holder has moved. The fence does not stop a
// process that lost the lock from moving another chunk. The deadline of the lock stops the process.
// Package referee reports such a move, because its Timestamp is later than the start of a round
// with a higher fence.
func (s *Store) Move(ctx context.Context, m cluster.Migration, fence int64) (bson.Timestamp,
	error) {
	var moved struct {
		At bson.Timestamp `bson:"movedAt"`
	}
	err := s.rows(chunks).FindOneAndUpdate(ctx,
		bson.M{"_id": m.Chunk.ID, "shard": m.Chunk.Shard, "$or": bson.A{
			bson.M{"fence": bson.M{"$exists": false}}, bson.M{"fence": bson.M{"$lte": fence}}}},
		bson.M{"$set": bson.M{"shard": m.To, "fence": fence},
			"$currentDate": stampOf("movedAt")}, after).Decode(&moved)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return bson.Timestamp{}, fmt.Errorf("%w: chunk %s", ErrStale, m.Chunk.Name())
	}
	return moved.At, wrap("move chunk "+m.Chunk.Name(), err)
}

// Rounds returns the records of all rounds.
func (s *Store) Rounds(ctx context.Context) (all []cluster.Round, err error) {
	err = s.all(ctx, rounds, &all)
	return all, err
}
