package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// errAgain ends a transaction that has to begin anew: the index for keys is not there yet, and
// cannot be made while the transaction holds the collection; or another one has added the key
// meanwhile.
var errAgain = errors.New("rows with a key are inserted outside of a transaction first, or again")

// mostAgain is how often a transaction begins because of that.
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
	if !mongo.IsDuplicateKeyError(err) {
		return inserted, m.failed("insert, update", err)
	}
	// Somebody was faster, or it is another index of the user's.
	if transacts(ctx) {
		return false, fmt.Errorf("%w: %w", errAgain, m.failed("insert, update", err))
	}
	inserted, err = insert()
	return inserted, m.failed("insert, update", err)
}

// setting is what an upsert sets of a document: all of it.
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
	if len(set) == 0 { // a server wants one
		set = append(set, m.e("attempts", int64(0)))
	}
	return set, nil
}

// prepareUnique makes sure of the index, once for each process, in two commands. One that is being
// built for somebody else may be waited for by the first or not; it keeps no key out yet. Who may
// not create it believes the list.
func (m *Mongo) prepareUnique(ctx context.Context) error {
	if m.unique.Load() {
		return nil
	}
	if transacts(ctx) {
		return errAgain
	}
	keys := bson.D{m.e("unique", 1)}
	for {
		_, err := m.rows.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys,
			Options: options.Index().SetUnique(true).SetSparse(true)})
		if has(err, codeUnauthorized) {
			if found, listErr := m.indexes(ctx); listErr == nil && slices.ContainsFunc(found, m.isUnique) {
				err = nil
			}
		}
		if err != nil {
			command := strings.TrimSuffix(m.creating(index{keys: keys}), ")")
			return m.indexMissing(command+", {unique: true, sparse: true})", err)
		}
		is, err := m.inForce(ctx, keys, bson.D{m.e("unique", "")})
		if is {
			m.unique.Store(true)
			return nil
		}
		if err = cmp.Or(err, pause(ctx)); err != nil {
			return err
		}
	}
}

// isUnique reports whether an index allows each key once, and rows without one.
func (m *Mongo) isUnique(spec bson.Raw) bool {
	unique, _ := spec.Lookup("unique").BooleanOK()
	keys, _ := spec.Lookup("key").DocumentOK()
	elements, _ := keys.Elements()
	return unique && len(elements) == 1 && elements[0].Key() == m.at("unique")
}
