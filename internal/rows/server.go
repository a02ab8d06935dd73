package rows

import (
	"bytes"
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

// ErrNoTransactions is returned by Transact, or by FinishIn in it, where there are no transactions.
var ErrNoTransactions = catalog.ErrNoTransactions

// Codes of the server.
const (
	codeBadValue          = 2 // a hint that names no index, among others
	codeUnauthorized      = 13
	codeIllegal           = 20 // transactions on a standalone
	codeDuplicate         = 11000
	codeNamespaceNotFound = 26
	codeCommandNotFound   = 59
	codeNoTransactions    = 263
	codeAPIStrict         = 323
)

func has(err error, codes ...int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(codes, server.HasErrorCode)
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
	ctx = alone(ctx)
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
		SetReadPreference(readpref.Primary()) // else the client's, with which work could not read
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

// canTransact asks the server once. The embedded one would carry commands out, without a
// transaction.
func (m *Mongo) canTransact(ctx context.Context) error {
	switch m.transactions.Load() {
	case yes:
		return nil
	case no:
		return fmt.Errorf("%w: the collection's server is no replica set", ErrNoTransactions)
	}
	hello, err := m.hello(ctx)
	if err != nil {
		return err
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

// An index is one that the queries need.
type index struct {
	keys   bson.D
	only   bson.D // the documents that it holds; nil: all
	unique bool
	exact  bool // no longer one will do: commands name it
	orders bool // it says which rows come first
	spared bool // a FerretDB v1 does without: it knows no partial ones, and reads everything anyway
}

// needed are the indexes that the queries need.
func (m *Mongo) needed() []index {
	list := []index{{keys: bson.D{m.e("state", 1), m.e("notBefore", 1)}}}
	if len(m.sort) > 0 {
		list = append(list, index{keys: m.order(), exact: m.chain.key != "", orders: true})
	}
	if m.keeps {
		list = append(list, index{keys: bson.D{m.e("doneAt", 1)}})
	}
	if m.chain.key != "" {
		list = append(list, m.gate(), m.holders())
	}
	return append(list, m.ofClaimed())
}

// ofClaimed is the index of the claimed rows. With it what a process reads of its own rows does not
// grow with those of other processes, and the rescuer reads keys of it and no document.
func (m *Mongo) ofClaimed() index {
	return index{spared: true, only: bson.D{m.is(Claimed)}, keys: bson.D{m.e("state", 1),
		m.e("slot", 1), m.e("slotFence", 1), m.e("session", 1), m.e("locks", 1), m.e("leaseMS", 1)}}
}

// lacking returns the indexes that are missing. One command, and another for that of claimed rows.
func (m *Mongo) lacking(ctx context.Context) ([]index, error) {
	ctx = alone(ctx)
	found, err := m.indexes(ctx)
	if err != nil {
		return nil, err
	}
	m.collated.Store(slices.ContainsFunc(found, func(spec bson.Raw) bool {
		return spec.Lookup("name").StringValue() == "_id_" && spec.Lookup("collation").Type != 0
	}))
	missing := slices.DeleteFunc(m.needed(), func(i index) bool {
		at := slices.IndexFunc(found, i.isServedBy)
		if at >= 0 && i.orders {
			m.ordered.Store(found[at].Lookup("name").StringValue())
		}
		return at >= 0
	})
	last := len(missing) - 1
	if last < 0 || !missing[last].spared {
		return missing, nil
	}
	info, err := m.rows.Database().RunCommand(ctx, d("buildInfo", 1)).Raw()
	switch {
	case has(err, codeAPIStrict): // of MongoDB 5.0 or newer, to a client bound to API version 1
		err = nil
	case err == nil && info.Lookup("ferretdbVersion").Type != 0:
		missing = missing[:last]
	}
	return missing, m.failed("buildInfo", err)
}

// indexes are those of the collection. One command.
func (m *Mongo) indexes(ctx context.Context) (found []bson.Raw, err error) {
	found, err = read(m.rows.Indexes().List(ctx))(ctx)
	if err != nil && !has(err, codeNamespaceNotFound) {
		return nil, m.failed("listIndexes", err)
	}
	return found, nil
}

func (m *Mongo) indexMissing(command string, err error) error {
	return fmt.Errorf("index missing, create it with %s: %w", command, m.failed("createIndex", err))
}

// creating is the command that creates an index, for the shell.
func (m *Mongo) creating(i index) string {
	arguments := []bson.D{i.keys}
	if i.only != nil {
		arguments = append(arguments, d("partialFilterExpression", i.only))
	}
	if i.unique {
		arguments[1] = append(d("unique", true), arguments[1]...)
	}
	var texts []string
	for _, one := range arguments {
		text, _ := bson.MarshalExtJSON(one, false, false) // names and small numbers
		texts = append(texts, catalog.Printable(string(text), len(text)))
	}
	return fmt.Sprintf("db.getSiblingDB(%q).getCollection(%q).createIndex(%s)",
		m.rows.Database().Name(), m.rows.Name(), strings.Join(texts, ", "))
}

// Missing returns, for each index that the queries need and that is missing, the command that
// creates it, for the shell. It changes nothing. Two commands at most.
func (m *Mongo) Missing(ctx context.Context) ([]string, error) {
	missing, err := m.lacking(ctx)
	var commands []string
	for _, i := range missing {
		commands = append(commands, m.creating(i))
	}
	return commands, err
}

// Prepare is documented in [Store].
func (m *Mongo) Prepare(ctx context.Context) error {
	ctx = alone(ctx)
	missing, err := m.lacking(ctx)
	if err != nil {
		return err
	}
	for _, i := range missing {
		opts := options.Index()
		if i.only != nil {
			opts.SetPartialFilterExpression(i.only)
		}
		if i.unique {
			opts.SetUnique(true)
		}
		name, err := m.rows.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: i.keys, Options: opts})
		if err == nil && i.orders {
			m.ordered.Store(name)
		}
		if i.unique && refuses(err) {
			return &KeyError{m.chain.key, catalog.Shown(err)}
		}
		if err != nil {
			return m.indexMissing(m.creating(i), err)
		}
	}
	if m.chain.key == "" {
		return nil
	}
	if len(missing) > 0 { // a server may leave out what it does not know
		if missing, err = m.lacking(ctx); err == nil && len(missing) > 0 {
			err = fmt.Errorf("the server has made another index than %s", m.creating(missing[0]))
			return &KeyError{m.chain.key, err}
		}
	}
	for err == nil {
		var is bool
		if is, err = m.inForce(ctx, m.gate().keys, m.gate().only); is {
			return nil
		}
		err = cmp.Or(err, pause(ctx))
	}
	return err
}

// inForce reports whether a server uses an index: one that is being built is listed as any other,
// and keeps no document out yet. The filter is one that the index serves. One command.
func (m *Mongo) inForce(ctx context.Context, keys, filter bson.D) (bool, error) {
	opts := options.Find().SetHint(keys).SetLimit(1).SetProjection(d("_id", 1))
	cursor, err := m.rows.Find(ctx, filter, opts)
	if has(err, codeBadValue) {
		return false, nil
	}
	if err == nil {
		err = cursor.Close(ctx)
	}
	return err == nil, m.failed("find", err)
}

// pause waits for a moment in which an index may be built.
func pause(ctx context.Context) error {
	const moment = 20 * time.Millisecond
	clock.Sleep(clock.From(ctx), moment, ctx.Done())
	if ctx.Err() != nil {
		return fmt.Errorf("an index is still being built: %w", context.Cause(ctx))
	}
	return nil
}

// isServedBy reports whether an index that is there is this one, or begins with its keys and holds
// all documents.
func (i index) isServedBy(spec bson.Raw) bool {
	only, _ := spec.Lookup("partialFilterExpression").DocumentOK()
	want, _ := bson.Marshal(i.only) // names
	if i.only != nil && !bytes.Equal(only, want) || i.only == nil && only != nil {
		return false
	}
	unique, _ := spec.Lookup("unique").BooleanOK()
	own := i.exact || i.only != nil // with the collation of the collection, as the queries
	if i.unique && !unique || !own && spec.Lookup("collation").Type != 0 ||
		spec.Lookup("sparse").Type == bson.TypeBoolean {
		return false
	}
	there, _ := spec.Lookup("key").DocumentOK()
	elements, err := there.Elements()
	if err != nil || len(elements) < len(i.keys) || len(elements) > len(i.keys) && own {
		return false
	}
	for n, key := range i.keys {
		got, ok := elements[n].Value().AsInt64OK()
		if elements[n].Key() != key.Key || !ok || fmt.Sprint(got) != fmt.Sprint(key.Value) {
			return false
		}
	}
	return true
}
