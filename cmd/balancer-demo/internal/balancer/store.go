package balancer

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
)

// ErrNotEmpty is returned by Load when the database holds a cluster already.
var ErrNotEmpty = errors.New("balancer: the database holds a cluster already")

// ErrStale is returned by Move when the chunk is not on the shard it has to leave any more, or
// carries a higher fence: this process is no longer the one to move it.
var ErrStale = errors.New("balancer: a newer holder was here")

// Store reads and writes the metadata of one cluster in one database. Safe for concurrent use.
type Store struct {
	db     *mongo.Database
	prefix string
	// texts is set for a server that stores neither MinKey nor dotted field names.
	texts bool
}

// ConfigServerPrefix stands before the names of the collections on a config server, whose own
// metadata has these names and is not to be touched.
const ConfigServerPrefix = "demo_"

// NewStore works on the collections of a database of server.
func NewStore(client *mongo.Client, database string, server catalog.Server) *Store {
	opts := options.Database().SetWriteConcern(writeconcern.Majority())
	s := &Store{db: client.Database(database, opts), texts: server.Kind == catalog.FerretDB}
	if server.ConfigServer {
		s.prefix = ConfigServerPrefix
	}
	return s
}

func (s *Store) collection(name string) *mongo.Collection { return s.db.Collection(s.prefix + name) }

// Load writes a cluster into the empty database. It changes nothing when there is one already
// (ErrNotEmpty).
func (s *Store) Load(ctx context.Context, c cluster.Cluster) error {
	parts := c.Documents()
	for name := range parts {
		n, err := s.collection(name).CountDocuments(ctx, bson.D{}, options.Count().SetLimit(1))
		if err != nil {
			return wrap("load", err)
		}
		if n > 0 {
			return fmt.Errorf("%w: %s.%s is not empty; name another database", ErrNotEmpty, s.db.Name(), s.prefix+name)
		}
	}
	for name, raws := range parts {
		if err := s.insert(ctx, name, raws); err != nil {
			return wrap("load "+name, err)
		}
	}
	_, err := s.Tick(ctx)
	return err
}

func (s *Store) insert(ctx context.Context, collection string, raws []bson.Raw) error {
	docs := make([]any, len(raws))
	for i, raw := range raws {
		docs[i] = raw
		if s.texts {
			doc, err := cluster.Stored(raw)
			if err != nil {
				return err
			}
			docs[i] = doc
		}
	}
	_, err := s.collection(collection).InsertMany(ctx, docs)
	return err
}

// Read reads and checks the whole cluster.
func (s *Store) Read(ctx context.Context) (cluster.Cluster, error) {
	var whole []bson.Raw
	for _, name := range []string{
		cluster.ShardsCollection, cluster.CollectionsCollection, cluster.ChunksCollection,
	} {
		raws, err := s.all(ctx, name, bson.D{})
		if err != nil {
			return cluster.Cluster{}, err
		}
		whole = append(whole, raws...)
	}
	return cluster.Parse(whole)
}

func (s *Store) all(ctx context.Context, collection string, filter bson.D) ([]bson.Raw, error) {
	cursor, err := s.collection(collection).Find(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("balancer: read %s: %w", collection, err)
	}
	var raws []bson.Raw
	if err := cursor.All(ctx, &raws); err != nil {
		return nil, fmt.Errorf("balancer: read %s: %w", collection, err)
	}
	return raws, nil
}

// Tick asks the server for a stamp that is larger than all before it.
func (s *Store) Tick(ctx context.Context) (bson.Timestamp, error) {
	raw, err := s.collection(cluster.RoundsCollection).FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: cluster.TickID}}, cluster.Tick(),
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Raw()
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("balancer: tick: %w", err)
	}
	return timestamp(raw, "at")
}

func timestamp(raw bson.Raw, field string) (bson.Timestamp, error) {
	t, i, ok := raw.Lookup(field).TimestampOK()
	if !ok {
		return bson.Timestamp{}, fmt.Errorf("balancer: the server wrote no timestamp into %q", field)
	}
	return bson.Timestamp{T: t, I: i}, nil
}

// Begin records a round that has begun.
func (s *Store) Begin(ctx context.Context, r cluster.Round) error {
	_, err := s.collection(cluster.RoundsCollection).InsertOne(ctx, r.Document())
	return wrap("record the round", err)
}

// Finish records how a round ended.
func (s *Store) Finish(ctx context.Context, r cluster.Round) error {
	_, err := s.collection(cluster.RoundsCollection).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: r.ID()}}, r.Finish())
	return wrap("record the end of the round", err)
}

// Move moves one chunk and returns the server's stamp of the move. ErrStale when the filter matched
// nothing.
func (s *Store) Move(ctx context.Context, m cluster.Migration, fence int64,
	version bson.Timestamp) (bson.Timestamp, error) {
	raw, err := s.collection(cluster.ChunksCollection).FindOneAndUpdate(ctx,
		m.Filter(fence), m.Update(fence, version),
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return bson.Timestamp{}, fmt.Errorf("%w: chunk %s", ErrStale, m.Chunk.Name())
	}
	if err != nil {
		return bson.Timestamp{}, fmt.Errorf("balancer: move chunk %s: %w", m.Chunk.Name(), err)
	}
	return timestamp(raw, "movedAt")
}

// Record writes an entry of config.changelog.
func (s *Store) Record(ctx context.Context, c cluster.Change) error {
	_, err := s.collection(cluster.ChangelogCollection).InsertOne(ctx, c.Document(s.texts))
	return wrap("write the changelog", err)
}

// History reads the records of all rounds and moves.
func (s *Store) History(ctx context.Context) ([]cluster.Round, []cluster.Change, error) {
	raws, err := s.all(ctx, cluster.RoundsCollection,
		bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: cluster.TickID}}}})
	if err != nil {
		return nil, nil, err
	}
	var rounds []cluster.Round
	for _, raw := range raws {
		r, err := cluster.ParseRound(raw)
		if err != nil {
			return nil, nil, err
		}
		rounds = append(rounds, r)
	}
	if raws, err = s.all(ctx, cluster.ChangelogCollection, bson.D{}); err != nil {
		return nil, nil, err
	}
	var changes []cluster.Change
	for _, raw := range raws {
		c, ours, err := cluster.ParseChange(raw)
		if err != nil {
			return nil, nil, err
		}
		if ours {
			changes = append(changes, c)
		}
	}
	return rounds, changes, nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("balancer: %s: %w", what, err)
}
