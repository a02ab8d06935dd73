package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// ErrNoTransactions is the error of Transact, or of End in a transaction, on servers without
// transactions.
var ErrNoTransactions = catalog.ErrNoTransactions

// Codes of the server.
const (
	codeBadValue          = 2 // for example a hint that names no index
	codeUnauthorized      = 13
	codeIllegal           = 20 // transactions on a standalone
	codeDuplicate         = 11000
	codeNamespaceNotFound = 26
	codeCommandNotFound   = 59
	codeShardKeyNotFound  = 61
	codeNoTransactions    = 263
	codeOtherName         = 85 // the index exists with another name
)

func has(err error, codes ...int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(codes, server.HasErrorCode)
}

// failed adds the actions and the collection to err. A missing privilege is a
// *catalog.PrivilegeError.
func (m *Mongo) failed(actions string, err error) error {
	return m.failedOn(m.rows.Name(), actions, err)
}

func (m *Mongo) failedOn(collection, actions string, err error) error {
	namespace := m.rows.Database().Name() + "." + collection
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
	ctx = Alone(ctx)
	if err := m.canTransact(ctx); err != nil {
		return err
	}
	session, err := m.rows.Database().Client().StartSession()
	if err != nil {
		return m.failed("transaction", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	opts := options.Transaction().SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Snapshot()).
		SetReadPreference(readpref.Primary()) // the client's may not allow reads in work
	run := func(ctx context.Context) (any, error) { return nil, work(ctx) }
	for range mostAgain {
		if _, err = session.WithTransaction(ctx, run, opts); !errors.Is(err, errAgain) {
			break
		}
		if err := m.prepareUnique(ctx); err != nil {
			return err
		}
	}
	return err
}

// canTransact returns ErrNoTransactions if the server has no transactions. It asks the server once.
// The embedded server would carry out commands without a transaction.
func (m *Mongo) canTransact(ctx context.Context) error {
	switch m.transactions.Load() {
	case yes:
		return nil
	case no:
		return fmt.Errorf("%w: the collection's server is no replica set", ErrNoTransactions)
	}
	set, mongos, err := m.kind(ctx)
	if err != nil {
		return err
	}
	if set || mongos {
		m.transactions.Store(yes)
	} else {
		m.transactions.Store(no)
	}
	return m.canTransact(ctx)
}

// kind reports whether the server is a member of a replica set, or a mongos.
func (m *Mongo) kind(ctx context.Context) (set, mongos bool, err error) {
	hello, err := m.hello(ctx)
	_, set = hello.Lookup("setName").StringValueOK()
	msg, _ := hello.Lookup("msg").StringValueOK()
	return set, msg == "isdbgrid", err
}

// The values of Mongo.transactions. Zero is unknown.
const (
	yes = int32(iota + 1)
	no
)

// An index is an index that the queries need.
type index struct {
	keys   bson.D
	only   bson.D // the filter of a partial index
	unique bool
	sparse bool
	spared bool // FerretDB v1 needs no such index: it always reads everything
}

// name returns the name that drivers and the shell give to an index.
func (i index) name() string {
	var parts []string
	for _, key := range i.keys {
		parts = append(parts, fmt.Sprintf("%s_%v", key.Key, key.Value))
	}
	return strings.Join(parts, "_")
}

// needed returns the indexes that the queries need.
func (m *Mongo) needed() []index {
	list := []index{{keys: bson.D{m.e("state", 1), m.e("notBefore", 1)}},
		// With this index a process does not read the claims of other processes.
		{spared: true, only: bson.D{m.is(Claimed)}, keys: bson.D{m.e("state", 1), m.e("slot", 1),
			m.e("slotFence", 1), m.e("session", 1), m.e("locks", 1)}}}
	if len(m.sort) > 0 {
		list = append(list, index{keys: m.order()})
	}
	if m.keeps {
		list = append(list, index{keys: bson.D{m.e("doneAt", 1)}})
	}
	if m.chain.key != "" {
		list = append(list, m.gate(), m.holders())
	}
	return list
}

// lacking returns the missing indexes. It finds indexes by name.
func (m *Mongo) lacking(ctx context.Context) ([]index, error) {
	found, err := read(m.rows.Indexes().List(Alone(ctx)))(ctx)
	if err != nil && !has(err, codeNamespaceNotFound) {
		return nil, m.failed("listIndexes", err)
	}
	there := map[string]bson.Raw{}
	for _, spec := range found {
		name, _ := spec.Lookup("name").StringValueOK()
		there[name] = spec
	}
	m.collated.Store(there["_id_"].Lookup("collation").Type != 0)
	missing := slices.DeleteFunc(m.needed(), func(i index) bool {
		spec, is := there[i.name()]
		unique, _ := spec.Lookup("unique").BooleanOK()
		partial := spec.Lookup("partialFilterExpression").Type != 0
		return is && (!i.unique || unique && partial)
	})
	if slices.ContainsFunc(missing, isSpared) {
		info, err := m.rows.Database().RunCommand(Alone(ctx), d("buildInfo", 1)).Raw()
		if err == nil && info.Lookup("ferretdbVersion").Type != 0 {
			missing = slices.DeleteFunc(missing, isSpared)
		}
	}
	return missing, nil
}

func isSpared(i index) bool { return i.spared }

// command returns the shell command that creates an index.
func (m *Mongo) command(i index) string {
	arguments := []bson.D{i.keys, {}}
	for name, is := range map[string]bool{"unique": i.unique, "sparse": i.sparse} {
		if is {
			arguments[1] = append(arguments[1], e(name, true))
		}
	}
	if i.only != nil {
		arguments[1] = append(arguments[1], e("partialFilterExpression", i.only))
	}
	var texts []string
	for _, one := range arguments {
		if len(one) > 0 {
			text, _ := bson.MarshalExtJSON(one, false, false) // names and small numbers cannot fail
			texts = append(texts, catalog.Printable(string(text), len(text)))
		}
	}
	return fmt.Sprintf("db.getSiblingDB(%q).getCollection(%q).createIndex(%s)",
		m.rows.Database().Name(), m.rows.Name(), strings.Join(texts, ", "))
}

// Missing returns the shell commands that create the missing indexes.
func (m *Mongo) Missing(ctx context.Context) (commands []string, err error) {
	missing, err := m.lacking(ctx)
	for _, i := range missing {
		commands = append(commands, m.command(i))
	}
	return commands, err
}

// create creates an index.
func (m *Mongo) create(ctx context.Context, i index) error {
	opts := options.Index()
	if i.only != nil {
		opts.SetPartialFilterExpression(i.only)
	}
	if i.unique {
		opts.SetUnique(true)
	}
	if i.sparse {
		opts.SetSparse(true)
	}
	_, err := m.rows.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: i.keys, Options: opts})
	switch {
	case err == nil || has(err, codeOtherName) && !i.unique:
		return nil
	case i.only != nil && i.unique && refuses(err):
		return &KeyError{m.chain.key, catalog.Shown(err)}
	}
	return fmt.Errorf("index missing, create it with %s: %w", m.command(i),
		m.failed("createIndex", err))
}

// Prepare creates the missing indexes. If none is missing, it usually sends one command, or two
// with Options.Key.
func (m *Mongo) Prepare(ctx context.Context) error {
	ctx = Alone(ctx)
	missing, err := m.lacking(ctx)
	for _, i := range missing {
		if err := m.create(ctx, i); err != nil {
			return err
		}
	}
	if err != nil || m.chain.key == "" {
		return err
	}
	if len(missing) > 0 { // a server may leave out an option that it does not know
		if missing, err = m.lacking(ctx); err == nil && len(missing) > 0 {
			return &KeyError{m.chain.key, errors.New("the server created an index with other options")}
		}
	}
	return m.enforced(ctx, m.gate().keys, m.gate().only)
}

// enforced waits until the server uses an index. A server lists an index while building it, but
// does not enforce it yet. The index must serve filter.
func (m *Mongo) enforced(ctx context.Context, keys, filter bson.D) error {
	for {
		opts := options.Find().SetHint(keys).SetLimit(1).SetProjection(d("_id", 1))
		_, err := read(m.rows.Find(ctx, filter, opts))(ctx)
		if !has(err, codeBadValue) {
			return m.failed("find", err)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits a moment for an index that is being built.
func pause(ctx context.Context) error {
	const moment = 20 * time.Millisecond
	clock.Sleep(clock.From(ctx), moment, ctx.Done())
	if ctx.Err() != nil {
		return fmt.Errorf("an index is still being built: %w", context.Cause(ctx))
	}
	return nil
}
