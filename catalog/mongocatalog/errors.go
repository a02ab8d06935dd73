package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"mongodlm/catalog"
)

// This file classifies the driver's errors. It assumes that each write is sent at most once, see
// the package comment.

const idIndex = "_id_"

// Error codes of the server.
const (
	codeUnauthorized     = 13
	codeCommandNotFound  = 59
	codeAPIStrict        = 323
	codeObjectTooLarge   = 10334
	codeNoUserDatabase   = 14037
	codeUpdatedTooLarge  = 17419
	codeUpsertedTooLarge = 17420
)

// refused lists the error codes of commands that were not applied because the server cannot parse
// the command, does not allow it, or cannot change the document.
var refused = []int{
	2, 9, 14, 121, // BadValue, FailedToParse, TypeMismatch, DocumentValidationFailure
	166, 193, // CommandNotSupportedOnView, no sharding enabled
	10003, 11000, // CannotGrowDocumentInCappedNamespace, DuplicateKey
	codeCommandNotFound, codeNoUserDatabase,
	codeObjectTooLarge, codeUpdatedTooLarge, codeUpsertedTooLarge,
}

// notNow lists the error codes of commands that were not applied but may succeed later:
// UserWritesBlocked, NotWritablePrimary, NotPrimaryNoSecondaryOk.
var notNow = []int{371, 10107, 13435}

type outcome int

const (
	// unknown: the command may have been applied, or may be applied later.
	unknown outcome = iota
	// notApplied: the command was not applied.
	notApplied
	// unavailable: the command was not applied, because no server was available or the server was
	// overloaded.
	unavailable
	// denied: the command was not applied, because the user lacks a privilege.
	denied
)

// classify returns the outcome of a write that failed with err. If classify does not recognize the
// error, the outcome is unknown.
func classify(err error) outcome {
	var written mongo.WriteException
	if errors.As(err, &written) && written.WriteConcernError != nil {
		// The primary applied the write, but may roll it back.
		return unknown
	}
	var server mongo.ServerError
	answered := errors.As(err, &server)
	var login *auth.Error
	switch {
	case errors.As(err, &login):
		return notApplied // a retry does not fix a wrong password
	case neverSent(err):
		return unavailable
	case answered && server.HasErrorCode(codeUnauthorized):
		return denied
	case overloaded(err), answered && slices.ContainsFunc(notNow, server.HasErrorCode):
		return unavailable
	case answered && server.HasErrorLabel(driver.NoWritesPerformed),
		answered && slices.ContainsFunc(refused, server.HasErrorCode):
		return notApplied
	case errors.Is(err, driver.ErrDeadlineWouldBeExceeded) && !network(err):
		return notApplied
	case err == context.Canceled || err == context.DeadlineExceeded:
		// Before the driver sends a command, it checks the context. If the context has ended, the driver
		// returns the context's error unwrapped. If the context ends after that check, the driver returns
		// a connection error.
		return notApplied
	default:
		return unknown
	}
}

// overloaded reports whether an overloaded server refused a command and guarantees that it did not
// apply the command. MongoDB does so from 8.2 on, for example with codes 462 and
// 463. The label SystemOverloadedError alone is not a guarantee.
func overloaded(err error) bool {
	return labeled(err, driver.ErrSystemOverloadedError) &&
		(labeled(err, driver.ErrRetryableError) || labeled(err, driver.NoWritesPerformed))
}

// neverSent reports whether the command was not sent because there was no connection.
func neverSent(err error) bool {
	var selection topology.ServerSelectionError
	if errors.As(err, &selection) || errors.Is(err, mongo.ErrClientDisconnected) ||
		errors.Is(err, topology.ErrServerClosed) || errors.Is(err, topology.ErrPoolClosed) {
		return true
	}
	var connect topology.ConnectionError
	connecting := errors.As(err, &connect)
	if network(err) { // The command may have been sent, except if the handshake failed.
		return connecting && strings.HasPrefix(connect.Error(), handshake)
	}
	var wait topology.WaitQueueTimeoutError
	var cleared driver.RetryablePoolError
	return errors.As(err, &wait) || errors.As(err, &cleared) || connecting
}

// handshake is the beginning of the error text if a connection was refused, or broke before its
// first command. The driver has no type or code for this case. For a connection in use, the text
// begins with "connection(" and the connection's name.
const handshake = "connection() error occurred during connection handshake"

// network reports whether a connection broke. The command may or may not have been sent, see
// neverSent.
func network(err error) bool { return labeled(err, driver.NetworkError) }

// classifyRead returns the outcome of a read that failed with err. It never returns unknown.
func classifyRead(err error) outcome {
	switch got := classify(err); {
	case got != unknown:
		return got
	case network(err), labeled(err, driver.ErrSystemOverloadedError),
		hasCode(err, 6, 7, 24, 43, 50, 89, 91, 133, 134, 175, 189, 237, 262, 402, 433, 449, 450, 462, 463,
			11600, 11601, 11602, 13436):
		// The connection broke, the command took too long or was killed, the server is overloaded, or the
		// node changes its role.
		return unavailable
	default:
		return notApplied
	}
}

// An operation contains the name, the collection and the privileges of a store's operation, mainly
// for the texts of errors.
type operation struct {
	verb   string
	name   string // name of a lock or a process
	quoted bool   // the operation has a name

	database, collection string
	actions              string // required privileges on the collection
	writes               bool

	session *mongo.Session // session of the operation's transaction, or nil
}

func on(collection, actions, verb string, name ...string) operation {
	o := operation{verb: verb, collection: collection, actions: actions}
	if len(name) > 0 {
		o.name, o.quoted = name[0], true
	}
	return o
}

func reading(verb string, name ...string) operation {
	return on(catalog.LocksCollection, "find", verb, name...)
}

func (o operation) wrap(err error) error {
	if o.quoted {
		return fmt.Errorf("%s %q: %w", o.verb, o.name, err)
	}
	return fmt.Errorf("%s: %w", o.verb, err)
}

// failed classifies an error of the driver. errors.As finds the driver's error in the result.
func (o operation) failed(err error) error {
	if o.session != nil {
		return o.inTransaction(err)
	}
	kind := classifyRead
	if o.writes {
		kind = classify
	}
	clean := catalog.Shown(err)
	switch kind(err) {
	case unknown:
		return o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnknownOutcome, clean))
	case unavailable:
		return o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnavailable, clean))
	case denied:
		namespace := strings.TrimSuffix(o.database+"."+o.collection, ".")
		return o.wrap(&catalog.PrivilegeError{Namespace: namespace, Action: o.actions, Err: clean})
	}
	if hasCode(err, codeObjectTooLarge, codeUpdatedTooLarge, codeUpsertedTooLarge) {
		return o.wrap(fmt.Errorf("the document would be too large for the server: the lock has too "+
			"many holders and waiters, or their texts are too long: %w", clean))
	}
	if hasCode(err, codeNoUserDatabase) {
		return o.wrap(fmt.Errorf("a config server that is not a shard has no user databases; use "+
			"database %q there: %w", DefaultDatabase, clean))
	}
	return o.wrap(clean)
}

func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc(codes, server.HasErrorCode)
}

// duplicateKey reports whether a unique index rejected a document, and returns the name of that
// index. If the error does not contain the name, duplicateKey returns the index on _id.
func duplicateKey(err error) (index string, ok bool) {
	if !mongo.IsDuplicateKeyError(err) || errors.Is(err, catalog.ErrUnknownOutcome) {
		return "", false
	}
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return "", false
	}
	_, rest, found := strings.Cut(server.Error(), " index: ")
	name, _, ended := strings.Cut(rest, " dup key")
	if !found || !ended {
		return idIndex, true
	}
	return name, true
}
