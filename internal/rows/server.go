package rows

import (
	"cmp"
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
		SetReadPreference(readpref.Primary()) // the client's read preference may not allow reads in work
	run := func(ctx context.Context) (any, error) { return nil, work(ctx) }
	const tries = 3 // of a transaction that returns errAgain
	for range tries {
		if _, err = session.WithTransaction(ctx, run, opts); !errors.Is(err, errAgain) {
			break
		}
		if err := m.prepareUnique(ctx); err != nil {
			return err
		}
	}
	return err
}

// canTransact returns ErrNoTransactions if the server has no transactions. Without this check, the
// embedded server would carry out the commands without a transaction.
func (m *Mongo) canTransact(ctx context.Context) error {
	if m.transactions.Load() {
		return nil
	}
	server, err := m.server.Hello(ctx)
	if err == nil && !server.Transactions {
		err = fmt.Errorf("%w: the collection's server is not a replica set", ErrNoTransactions)
	}
	m.transactions.Store(err == nil)
	return err
}

// errAgain is the error of InsertUnique in a transaction if the index may be missing, or if another
// process has added the key. A transaction cannot create the index itself. Transact therefore
// creates the index and begins the transaction again.
var errAgain = errors.New("insert a row with a key outside of a transaction first, or try again")

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

// setting returns the fields of a document for the operator $setOnInsert.
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
		case name == m.Field:
			return nil, fmt.Errorf("the document has the field %q, which belongs to the queue", name)
		case name == "" || strings.Contains(name, ".") || strings.HasPrefix(name, "$"):
			return nil, fmt.Errorf("the document has the field %q: with a key, no name may be empty, "+
				"contain a dot or begin with a dollar", name)
		default:
			set = append(set, e(name, one.Value()))
		}
	}
	if len(set) == 0 { // a server requires at least one field
		set = append(set, m.e("attempts", int64(0)))
	}
	return set, nil
}

// prepareUnique creates the index of InsertUnique if it does not exist. It does so once in each
// process.
func (m *Mongo) prepareUnique(ctx context.Context) error {
	if m.unique.Load() {
		return nil
	}
	if transacts(ctx) {
		return errAgain
	}
	err := m.ensure(ctx, index{keys: bson.D{m.e("unique", 1)}, unique: true, sparse: true})
	m.unique.Store(err == nil)
	return err
}

// An index describes an index of the collection that the queries need.
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

func (i index) options() (all bson.D) {
	if i.sparse {
		all = append(all, e("sparse", true))
	}
	if i.unique {
		all = append(all, e("unique", true))
	}
	if i.only != nil {
		all = append(all, e("partialFilterExpression", i.only))
	}
	return all
}

func (m *Mongo) needed() []index {
	list := []index{{keys: bson.D{m.e("state", 1), m.e("notBefore", 1)}},
		// With this index, a query for the claims of one process reads no other claims.
		{spared: true, only: bson.D{m.is(Claimed)}, keys: bson.D{m.e("state", 1), m.e("slot", 1),
			m.e("slotFence", 1), m.e("session", 1), m.e("locks", 1)}}}
	if len(m.sort) > 0 {
		list = append(list, index{keys: m.order()})
	}
	if m.Keeps {
		list = append(list, index{keys: bson.D{m.e("doneAt", 1)}})
	}
	if m.Key != "" {
		list = append(list, m.gate(), m.holders())
	}
	return list
}

// lacking returns those of the given indexes that do not exist, or exist with other options.
func (m *Mongo) lacking(ctx context.Context, needed ...index) (missing []index, _ error) {
	ctx = Alone(ctx)
	found, err := read(m.rows.Indexes().List(ctx))(ctx)
	if err != nil && !has(err, codeNamespaceNotFound) {
		return nil, m.failed("listIndexes", err)
	}
	there := map[string]bson.Raw{}
	for _, spec := range found {
		name, _ := spec.Lookup("name").StringValueOK()
		there[name] = spec
	}
	for _, i := range needed {
		spec, is := there[i.name()]
		unique, _ := spec.Lookup("unique").BooleanOK()
		partial := spec.Lookup("partialFilterExpression").Type != 0
		if !is || i.unique && (!unique || partial != (i.only != nil)) {
			missing = append(missing, i)
		}
	}
	isSpared := func(i index) bool { return i.spared }
	if slices.ContainsFunc(missing, isSpared) {
		info, err := m.rows.Database().RunCommand(ctx, d("buildInfo", 1)).Raw()
		if err == nil && info.Lookup("ferretdbVersion").Type != 0 {
			missing = slices.DeleteFunc(missing, isSpared)
		}
	}
	return missing, nil
}

func (m *Mongo) command(i index) string {
	var arguments []string
	for _, one := range []bson.D{i.keys, i.options()} {
		if len(one) > 0 {
			text, _ := bson.MarshalExtJSON(one, false, false) // names and small numbers cannot fail
			arguments = append(arguments, catalog.Printable(string(text), len(text)))
		}
	}
	return fmt.Sprintf("db.getSiblingDB(%q).getCollection(%q).createIndex(%s)",
		m.rows.Database().Name(), m.rows.Name(), strings.Join(arguments, ", "))
}

// Missing returns the shell commands that create the missing indexes.
func (m *Mongo) Missing(ctx context.Context) (commands []string, err error) {
	missing, err := m.lacking(ctx, m.needed()...)
	for _, i := range missing {
		commands = append(commands, m.command(i))
	}
	return commands, err
}

func (m *Mongo) create(ctx context.Context, i index) error {
	spec := append(bson.D{e("key", i.keys), e("name", i.name())}, i.options()...)
	err := m.rows.Database().RunCommand(ctx, bson.D{e("createIndexes", m.rows.Name()),
		e("indexes", bson.A{spec}), e("writeConcern", d("w", "majority"))}).Err()
	switch {
	case err == nil || has(err, codeOtherName) && !i.unique:
		return nil
	case i.only != nil && i.unique && refuses(err):
		return fmt.Errorf("%w: Key %q: %w", ErrNoChains, m.Key, catalog.Shown(err))
	}
	return fmt.Errorf("index missing, create it with %s: %w", m.command(i),
		m.failed("createIndex", err))
}

// Prepare creates the missing indexes. If all indexes exist, it usually sends one command, or two
// with Options.Key.
func (m *Mongo) Prepare(ctx context.Context) error { return m.ensure(Alone(ctx), m.needed()...) }

// ensure creates the missing ones of the given indexes. It waits until the unique ones are built:
// while a server builds an index, it lists the index but does not enforce it.
func (m *Mongo) ensure(ctx context.Context, needed ...index) error {
	missing, err := m.lacking(ctx, needed...)
	for _, i := range missing {
		if err := m.create(ctx, i); err != nil {
			return err
		}
	}
	for _, i := range needed {
		if err != nil || !i.unique {
			continue
		}
		filter := i.only // the query must be one that the index supports
		if filter == nil {
			filter = d(i.keys[0].Key, "")
		} else if len(missing) > 0 { // a server may omit an option that it does not know
			if left, err := m.lacking(ctx, i); err != nil || len(left) > 0 {
				return cmp.Or(err, fmt.Errorf("%w: Key %q: the created index has other options",
					ErrNoChains, m.Key))
			}
		}
		opts := options.Find().SetHint(i.keys).SetLimit(1).SetProjection(d("_id", 1))
		err = m.failed("find", hinted(ctx, pause, func() error {
			_, err := read(m.rows.Find(ctx, filter, opts))(ctx)
			return err
		}))
	}
	return err
}

func pause(ctx context.Context) error {
	const moment = 20 * time.Millisecond
	clock.Sleep(clock.From(ctx), moment, ctx.Done())
	if ctx.Err() != nil {
		return fmt.Errorf("an index is still being built: %w", context.Cause(ctx))
	}
	return nil
}

// hinted sends a command that has an index hint, and repeats it until the index exists. After the
// first reply that the index is missing, it calls heal, which may create the index.
func hinted(ctx context.Context, heal func(context.Context) error, send func() error) error {
	for {
		err := send()
		if !has(err, codeBadValue) || !strings.Contains(err.Error(), "hint") {
			return err
		}
		if err := heal(ctx); err != nil {
			return err
		}
		heal = pause
	}
}

// ErrNoTransactions means that the server does not support transactions. It is returned by
// Transact, and by End if the context of End has a transaction.
var ErrNoTransactions = catalog.ErrNoTransactions

// Error codes of the server.
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
	server, is := errors.AsType[mongo.ServerError](err)
	return is && slices.ContainsFunc(codes, server.HasErrorCode)
}

// failed adds the collection and the attempted actions to the text of err. If a privilege is
// missing, it returns a *catalog.PrivilegeError.
func (m *Mongo) failed(actions string, err error) error {
	return m.failedOn(m.rows.Name(), actions, err)
}

func (m *Mongo) failedOn(collection, actions string, err error) error {
	if err == nil {
		return nil
	}
	namespace := m.rows.Database().Name() + "." + collection
	if has(err, codeUnauthorized) {
		return &catalog.PrivilegeError{Namespace: namespace, Action: actions, Err: catalog.Shown(err)}
	}
	return fmt.Errorf("%s of %s: %w", actions, namespace, catalog.Shown(err))
}

// Replies of the server. After another error, the server may have carried out the command.
var (
	// ErrRefused means that the server refuses to change rows, for example because of a validator or
	// their size. The command has changed the remaining rows.
	ErrRefused = errors.New("the server refuses to change a row")
	// ErrQuery means that the server refuses the query for rows because of its filter or order.
	ErrQuery = errors.New("the server refuses the query for rows")
	// ErrNoChains means that the server cannot create the unique index for chains.
	ErrNoChains = errors.New("Config.Key needs a unique partial index, which lets the server claim " +
		"one row of a key at a time, and this server cannot create it")
)

// codesPassing are the codes of transient errors in MongoDB 8. A transient error does not depend on
// a document or a query. For example, the server shuts down, is busy or accepts no writes, a chunk
// is being moved, or the user lacks a privilege.
var codesPassing = []int{6, 7, 11, codeUnauthorized, 18, 24, 43, 46, 50, 63, 64, 70, 71, 83, 89, 90,
	91, 107, 112, 117, 133, 134, 136, 145, 149, 150, 175, 189, 199, 202, 203, 209, 210, 211, 215, 216,
	225, 234, 237, 239, 246, 249, 250, 251, 261, 262, 264, 267, 272, 279, 281, 282, 290, 303, 308, 310,
	314, 317, 319, 338, 342, 343, 355, 358, 363, 365, 371, 391, 402, 406, 407, 412, 414, 433, 449,
	450, 462, 463, 8000, 9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436, 14031}

var labelsPassing = []string{"RetryableWriteError", "TransientTransactionError", "RetryableError"}

// refuses reports whether the server has refused a command and would refuse it again.
func refuses(err error) bool {
	server, is := errors.AsType[mongo.ServerError](err)
	if !is || has(err, codesPassing...) || slices.ContainsFunc(labelsPassing, server.HasErrorLabel) {
		return false
	}
	if bulk, is := errors.AsType[mongo.BulkWriteException](err); is {
		return len(bulk.WriteErrors) > 0
	}
	if write, is := errors.AsType[mongo.WriteException](err); is {
		return len(write.WriteErrors) > 0
	}
	_, is = errors.AsType[mongo.CommandError](err)
	return is
}

// A HeldError is returned by Claim if another row holds the key of the first ready row. The claim
// has changed no row.
type HeldError struct{ Key bson.RawValue } // zero if the server does not report the key

func (e *HeldError) Error() string {
	return fmt.Sprintf("another row holds the key %s", Text(e.Key))
}
