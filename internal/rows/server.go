package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
)

// ErrNoTransactions is returned by Transact where there are no transactions.
var ErrNoTransactions = catalog.ErrNoTransactions

// ErrNoStream is returned by Watch where there are no change streams.
var ErrNoStream = errors.New("no change streams here")

// Codes of the server.
const (
	codeUnauthorized      = 13
	codeIllegal           = 20 // transactions on a standalone
	codeNamespaceNotFound = 26
	codeNoTransactions    = 263
)

// codesNoStream are those with which servers refuse a change stream: a standalone (40573, 20), a
// database of the server's own (73), and those that do not know the stage.
var codesNoStream = []int{codeIllegal, 59, 73, 115, 238, 40324, 40573}

func has(err error, codes ...int) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	for _, code := range codes {
		if server.HasErrorCode(code) {
			return true
		}
	}
	return false
}

// failed names the collection, and the privilege that is missing.
func (m *Mongo) failed(actions string, err error) error {
	namespace := m.rows.Database().Name() + "." + m.rows.Name()
	switch {
	case err == nil:
		return nil
	case has(err, codeUnauthorized):
		return &catalog.PrivilegeError{Namespace: namespace, Action: actions, Err: catalog.Shown(err)}
	}
	return fmt.Errorf("%s of %s: %w", actions, namespace, catalog.Shown(err))
}

// Transact is documented in [Store].
func (m *Mongo) Transact(ctx context.Context, work func(context.Context) error) error {
	if err := m.canTransact(ctx); err != nil {
		return err
	}
	session, err := m.rows.Database().Client().StartSession()
	if err != nil {
		return m.failed("transaction", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	opts := options.Transaction().SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Snapshot())
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, work(ctx) }, opts)
	if has(err, codeIllegal, codeNoTransactions) {
		return fmt.Errorf("%w: %w", ErrNoTransactions, catalog.Shown(err))
	}
	return err
}

// canTransact asks the server once. The embedded one would carry the commands out and forget the
// transaction.
func (m *Mongo) canTransact(ctx context.Context) error {
	switch m.transactions.Load() {
	case yes:
		return nil
	case no:
		return fmt.Errorf("%w: the collection's server is no replica set", ErrNoTransactions)
	}
	hello, err := m.rows.Database().RunCommand(ctx, bson.D{e("isMaster", 1)}).Raw()
	if err != nil {
		return m.failed("isMaster", err)
	}
	_, set := hello.Lookup("setName").StringValueOK()
	if msg, _ := hello.Lookup("msg").StringValueOK(); set || msg == "isdbgrid" {
		m.transactions.Store(yes)
	} else {
		m.transactions.Store(no)
	}
	return m.canTransact(ctx)
}

// What a server said of transactions; zero before it was asked.
const (
	yes = int32(iota + 1)
	no
)

// keys are those of the indexes that the queries need.
func (m *Mongo) keys() []bson.D {
	keys := []bson.D{{e(m.at("state"), 1), e(m.at("notBefore"), 1)}}
	if len(m.sort) > 0 {
		keys = append(keys, append(bson.D{e(m.at("state"), 1)}, m.sort...))
	}
	return keys
}

// lacking returns the keys of the indexes that are missing. One command.
func (m *Mongo) lacking(ctx context.Context) ([]bson.D, error) {
	cursor, err := m.rows.Indexes().List(ctx)
	var found []bson.Raw
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	if err != nil && !has(err, codeNamespaceNotFound) {
		return nil, m.failed("listIndexes", err)
	}
	return slices.DeleteFunc(m.keys(), func(keys bson.D) bool { return served(found, keys) }), nil
}

// creating is the command that creates an index, for the shell.
func (m *Mongo) creating(keys bson.D) string {
	text, _ := bson.MarshalExtJSON(keys, false, false) // names and small numbers
	return fmt.Sprintf("db.getSiblingDB(%q).getCollection(%q).createIndex(%s)", m.rows.Database().Name(),
		m.rows.Name(), catalog.Printable(string(text), len(text)))
}

// Missing returns, for each index that the queries need and that is missing, the command that
// creates it, for the shell. It changes nothing. One command.
func (m *Mongo) Missing(ctx context.Context) ([]string, error) {
	keys, err := m.lacking(ctx)
	var commands []string
	for _, k := range keys {
		commands = append(commands, m.creating(k))
	}
	return commands, err
}

// Prepare is documented in [Store].
func (m *Mongo) Prepare(ctx context.Context) error {
	missing, err := m.lacking(ctx)
	if err != nil {
		return err
	}
	for _, keys := range missing {
		if _, err := m.rows.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys}); err != nil {
			return fmt.Errorf("index missing, create it with %s: %w", m.creating(keys), m.failed("createIndex", err))
		}
	}
	return nil
}

// served reports whether an index begins with these keys and holds all documents.
func served(found []bson.Raw, keys bson.D) bool {
next:
	for _, spec := range found {
		if spec.Lookup("partialFilterExpression").Type != 0 || spec.Lookup("collation").Type != 0 ||
			spec.Lookup("sparse").Type == bson.TypeBoolean {
			continue
		}
		there, _ := spec.Lookup("key").DocumentOK()
		elements, err := there.Elements()
		if err != nil || len(elements) < len(keys) {
			continue
		}
		for i, key := range keys {
			got, ok := elements[i].Value().AsInt64OK()
			if elements[i].Key() != key.Key || !ok || fmt.Sprint(got) != fmt.Sprint(key.Value) {
				continue next
			}
		}
		return true
	}
	return false
}

// Watch is documented in [Store].
func (m *Mongo) Watch(ctx context.Context, wake func()) error {
	stream, err := m.rows.Watch(ctx, bson.A{
		bson.D{e("$match", bson.D{e("operationType", bson.D{e("$in", bson.A{"insert", "replace"})})})},
		bson.D{e("$project", bson.D{e("_id", 1)})},
	})
	if has(err, codesNoStream...) {
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	if err != nil {
		return m.failed("changeStream, find", err)
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }() // the server closes it by itself
	wake()                                                          // for what came before
	for stream.Next(ctx) {
		wake()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.failed("changeStream, find", stream.Err())
}
