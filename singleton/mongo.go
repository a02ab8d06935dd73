package singleton

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
)

// codeUnauthorized is the server's code for a missing privilege.
const codeUnauthorized = 13

// mongoStore is a Store in MongoDB. Each method sends one command. If a change matches no record,
// Change sends more commands.
type mongoStore struct{ settings, records *mongo.Collection }

var _ Store = (*mongoStore)(nil)

// NewStore returns the store in db, usually the database of the locks. The store reads from the
// primary with read concern majority, and writes with write concern majority. The read concern and
// the write concern of db have no effect. The user needs the privilege find on distlock_settings,
// and the privileges find, insert and update on singletons. NewStore does no I/O. If db is nil, it
// returns [ErrBadArgument].
func NewStore(db *mongo.Database) (Store, error) {
	if db == nil {
		return nil, bad("the database is nil")
	}
	journaled := true
	opts := options.Collection().SetReadConcern(readconcern.Majority()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled})
	return &mongoStore{settings: db.Collection(SettingsCollection, opts),
		records: db.Collection(RecordsCollection, opts)}, nil
}

func (s *mongoStore) Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error) {
	raws, err := all(ctx, s.settings, bson.D{e("_id", bson.D{e("$in", names)})})
	if err != nil {
		return nil, err
	}
	found := map[string]bson.Raw{}
	for _, raw := range raws {
		if name, ok := raw.Lookup("_id").StringValueOK(); ok {
			found[name] = raw
		}
	}
	return found, nil
}

func (s *mongoStore) Records(ctx context.Context) ([]bson.Raw, error) {
	return all(ctx, s.records, bson.D{})
}

func all(ctx context.Context, from *mongo.Collection, filter bson.D) (raws []bson.Raw, err error) {
	ctx = mongo.NewSessionContext(ctx, nil) // not part of the caller's transaction
	cursor, err := from.Find(ctx, filter, options.Find().SetSort(bson.D{e("_id", 1)}))
	if err == nil {
		err = cursor.All(ctx, &raws)
	}
	return raws, failed("read", from, "find", err)
}

func (s *mongoStore) Change(ctx context.Context, c Change) (bson.Raw, error) {
	ctx = mongo.NewSessionContext(ctx, nil)
	filter := bson.D{e("_id", c.Name), e("fence", bson.D{e("$lte", c.Fence)})}
	if c.Rev != 0 {
		filter = append(filter, e("rev", c.Rev))
	}
	dates := bson.D{e("seen", true)}
	for _, field := range c.Dates {
		dates = append(dates, e(field, true))
	}
	update := bson.D{
		e("$set", append(bson.D{e("fence", c.Fence)}, c.Set...)),
		e("$inc", bson.D{e("rev", int64(1))}),
		e("$currentDate", dates),
	}
	opts := options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(c.Rev == 0)
	for again := false; ; again = true {
		raw, err := s.records.FindOneAndUpdate(ctx, filter, update, opts).Raw()
		if !errors.Is(err, mongo.ErrNoDocuments) && !mongo.IsDuplicateKeyError(err) {
			return raw, failed("write", s.records, "find, insert, update", err)
		}
		// The change matched no record. Read the record of this name to find the reason.
		raw, err = s.records.FindOne(ctx, filter[:1]).Raw() // without a document, raw is nil
		if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
			return nil, failed("read", s.records, "find", err)
		}
		if refused := c.refused(raw); refused != nil || again {
			return nil, refused
		} // otherwise two processes inserted the record at the same time
	}
}

func (s *mongoStore) Ask(ctx context.Context, name string, rev int64) error {
	ctx = mongo.NewSessionContext(ctx, nil)
	done, err := s.records.UpdateOne(ctx, bson.D{e("_id", name), e("rev", rev)},
		bson.D{e("$inc", bson.D{e("asks", int64(1))})})
	if err == nil && done.MatchedCount == 0 {
		return fmt.Errorf("%w: %q does not have revision %d", ErrChanged, name, rev)
	}
	return failed("write", s.records, "update", err)
}

// refused returns the reason why the change does not match the record, or nil if it matches. If
// there is no record, raw is nil.
func (c Change) refused(raw bson.Raw) error {
	if raw == nil {
		if c.Rev != 0 {
			return fmt.Errorf("%w: %q was removed", ErrChanged, c.Name)
		}
		return nil
	}
	fence, ok := number(raw.Lookup("fence"))
	if !ok {
		return &MalformedError{Collection: RecordsCollection, ID: c.Name, Field: "fence",
			Problem: "must be a whole number, not " + kindOf(raw.Lookup("fence"))}
	}
	if fence > c.Fence {
		return fmt.Errorf("%w: the fence of %q is %d, not %d", ErrStale, c.Name, fence, c.Fence)
	}
	if rev, ok := number(raw.Lookup("rev")); c.Rev != 0 && (!ok || rev != c.Rev) {
		return fmt.Errorf("%w: %q has revision %v, not %d", ErrChanged, c.Name, raw.Lookup("rev"), c.Rev)
	}
	return nil
}

func failed(verb string, collection *mongo.Collection, actions string, err error) error {
	if err == nil {
		return nil
	}
	name := collection.Database().Name() + "." + collection.Name()
	server, is := errors.AsType[mongo.ServerError](err)
	if is && server.HasErrorCode(codeUnauthorized) {
		return fmt.Errorf("singleton: %s: %w", verb,
			&catalog.PrivilegeError{Namespace: name, Action: actions, Err: catalog.Shown(err)})
	}
	return fmt.Errorf("singleton: %s %s: %w", verb, name, catalog.Shown(err))
}
