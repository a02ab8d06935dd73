package rows

import (
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
)

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
	ErrNoChains = errors.New("Config.Key needs a unique partial index, which lets the server claim one " +
		"row of a key at a time, and this server cannot create it")
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
