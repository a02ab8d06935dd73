package rows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// errAgain makes a transaction begin again. Either the index of the keys is missing and cannot be
// created while the transaction holds the collection, or another process has added the key.
var errAgain = errors.New("rows with a key are inserted outside of a transaction first, or again")

// mostAgain is the most tries of a transaction that returns errAgain.
const mostAgain = 3

// InsertUnique is documented in [Store].
func (m *Mongo) InsertUnique(ctx context.Context, key string, doc any) (bool, error) {
	set, err := m.setting(doc)
	if err != nil {
		return false, err
	}
	if err := m.prepareUnique(ctx); err != nil {
		return false, err
	}
	insert := func() (bool, error) {
		result, err := m.rows.UpdateOne(ctx, bson.D{m.e("unique", key)}, d("$setOnInsert", set),
			options.UpdateOne().SetUpsert(true))
		return err == nil && result.UpsertedCount > 0, err
	}
	inserted, err := insert()
	if mongo.IsDuplicateKeyError(err) { // another process was faster, or another index has the value
		if transacts(ctx) {
			return false, fmt.Errorf("%w: %w", errAgain, m.failed("insert, update", err))
		}
		inserted, err = insert()
	}
	return inserted, m.failed("insert, update", err)
}

// setting returns the fields of a whole document, as an upsert sets them.
func (m *Mongo) setting(doc any) (bson.D, error) {
	raw, err := bson.Marshal(doc)
	if err != nil {
		return nil, err
	}
	elements, err := bson.Raw(raw).Elements()
	if err != nil {
		return nil, err
	}
	set := bson.D{}
	for _, one := range elements {
		switch name := one.Key(); {
		case name == m.field:
			return nil, fmt.Errorf("the document has the field %q, which belongs to the queue", name)
		case name == "" || strings.Contains(name, ".") || strings.HasPrefix(name, "$"):
			return nil, fmt.Errorf("the document has the field %q: with a key it can have none with a dot "+
				"or a dollar", name)
		default:
			set = append(set, e(name, one.Value()))
		}
	}
	if len(set) == 0 { // a server requires at least one field
		set = append(set, m.e("attempts", int64(0)))
	}
	return set, nil
}

// prepareUnique creates the index of the keys, once in each process. A user without the privilege
// needs an existing index.
func (m *Mongo) prepareUnique(ctx context.Context) error {
	if m.unique.Load() {
		return nil
	}
	if transacts(ctx) {
		return errAgain
	}
	i := index{keys: bson.D{m.e("unique", 1)}, unique: true, sparse: true}
	err := m.create(ctx, i)
	if has(err, codeUnauthorized) {
		if there, failed := m.there(ctx); failed == nil && isUnique(there[i.name()]) {
			err = nil
		}
	}
	if err == nil {
		err = m.enforced(ctx, i.keys, bson.D{m.e("unique", "")})
	}
	m.unique.Store(err == nil)
	return err
}
