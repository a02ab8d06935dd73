package mongocatalog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// The results of a classification.
const (
	unknown     = "unknown"
	notApplied  = "not applied"
	unavailable = "unavailable"
	denied      = "denied"
)

func verdict(err error) string {
	var privilege *catalog.PrivilegeError
	switch {
	case errors.As(err, &privilege):
		return denied
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return unknown
	case errors.Is(err, catalog.ErrUnavailable):
		return unavailable
	default:
		return notApplied
	}
}

func command(code int32, labels ...string) error {
	return mongo.CommandError{Code: code, Message: "says the server", Labels: labels}
}

func written(code int) error {
	return mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: code, Message: "no"}}}
}

func broken(cause error) error {
	return mongo.CommandError{
		Message: "connection", Labels: []string{driver.NetworkError},
		Wrapped: driver.Error{Labels: []string{driver.NetworkError}, Wrapped: cause},
	}
}

func TestOutcome_OfEveryError(t *testing.T) {
	t.Parallel()
	concern := &mongo.WriteConcernError{Code: 64, Message: "waiting for replication timed out"}
	for _, c := range []struct {
		name        string
		err         error
		write, read string
	}{
		{"ServerSelection", topology.ServerSelectionError{Wrapped: context.DeadlineExceeded},
			unavailable, unavailable},
		{"Disconnected", mongo.ErrClientDisconnected, unavailable, unavailable},
		{"PoolExhausted", topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded},
			unavailable, unavailable},
		{"HandshakeFailed", topology.ConnectionError{Wrapped: io.EOF}, unavailable, unavailable},
		{"LooksLikeAHandshake", broken(topology.ConnectionError{ConnectionID: "c",
			Wrapped: errors.New("error occurred during connection handshake")}), unknown, unavailable},
		{"NotWritablePrimary", command(10107), unavailable, unavailable}, // E6
		{"NotPrimaryNoSecondaryOk", command(13435), unavailable, unavailable},
		{"NotWritablePrimaryOfUpdate", written(10107), unavailable, unavailable},
		{"NoWritesPerformed", command(91, driver.NoWritesPerformed), notApplied, notApplied},
		{"DeadlineWouldBeExceeded", fmt.Errorf("x: %w", driver.ErrDeadlineWouldBeExceeded),
			notApplied, notApplied},
		{"BareCanceled", context.Canceled, notApplied, notApplied}, // I13
		{"BareDeadline", context.DeadlineExceeded, notApplied, notApplied},
		{"Unauthorized", command(13), denied, denied},        // J1
		{"TooLarge", command(10334), notApplied, notApplied}, // J7
		{"TooLargeAfterUpdate", command(17419), notApplied, notApplied},
		{"TooLargeToUpsert", written(17420), notApplied, notApplied},
		{"UnauthorizedUpdate", written(13), denied, denied},
		{"TypeMismatch", command(14), notApplied, notApplied},
		{"BadValue", command(2), notApplied, notApplied},
		{"DuplicateKey", command(11000), notApplied, notApplied},
		{"DuplicateKeyOfUpdate", written(11000), notApplied, notApplied},
		{"Validator", command(121), notApplied, notApplied},   // F21
		{"WriteOnView", command(166), notApplied, notApplied}, // F21

		{"NoShardingEnabled", command(193), notApplied, notApplied},
		{"NoUserDatabase", command(14037), notApplied, notApplied},
		{"UserWritesBlocked", command(371), unavailable, unavailable},
		{"Overloaded82", command(462, of82...), unavailable, unavailable},
		{"Overloaded90", command(463, of90...), unavailable, unavailable},
		{"OverloadedByAnyCode", command(433, of90...), unavailable, unavailable},
		{"OverloadedWithoutPromise", command(462, of82[0]), unknown, unavailable},
		{"OverloadedWithoutLabels", command(463), unknown, unavailable},
		{"OverloadedWriteConcern", mongo.WriteException{WriteConcernError: concern, Labels: of90},
			unknown, unavailable},

		{"ConnectionBroken", broken(io.EOF), unknown, unavailable}, // D8
		{"ConnectionBrokenInside", broken(topology.ConnectionError{Wrapped: &net.OpError{
			Op: "read", Err: errors.New("reset by peer")}}), unknown, unavailable},
		{"ContextEndedInFlight", broken(context.DeadlineExceeded), unknown, unavailable},
		{"CanceledInFlight", broken(context.Canceled), unknown, unavailable},
		{"WrappedDeadline", fmt.Errorf("x: %w", context.DeadlineExceeded), unknown, notApplied},
		{"DeadlineWouldBeExceededOnBroken", broken(driver.ErrDeadlineWouldBeExceeded),
			unknown, unavailable},
		{"WriteConcern", mongo.WriteException{WriteConcernError: concern}, unknown, notApplied}, // E5
		{"WriteConcernAndNotPrimary", mongo.WriteException{
			WriteConcernError: &mongo.WriteConcernError{Code: 10107}}, unknown, notApplied},
		{"WriteConcernAndNoWrites", mongo.WriteException{WriteConcernError: concern,
			Labels: []string{driver.NoWritesPerformed}}, unknown, notApplied},
		{"SteppedDown", command(189), unknown, unavailable}, // E7
		{"InterruptedAtShutdown", command(11600), unknown, unavailable},
		{"InterruptedByElection", command(11602), unknown, unavailable},
		{"ShutdownInProgress", command(91), unknown, unavailable},
		{"MaxTime", command(50), unknown, unavailable},
		{"ExceededTimeLimit", command(262), unknown, unavailable},
		{"Interrupted, by killOp", command(11601), unknown, unavailable},
		{"CursorNotFound", command(43), unknown, unavailable},
		{"QueryPlanKilled", command(175), unknown, unavailable},
		{"CursorKilled", command(237), unknown, unavailable},
		{"WriteConflict", command(112), unknown, notApplied},
		{"NeverHeardOf", command(424242), unknown, notApplied},
		{"OutOfSpace", command(14031), unknown, notApplied},
		{"Anything", errors.New("malformed wire message"), unknown, notApplied},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			write, read := mongocatalog.Failed(c.err, true), mongocatalog.Failed(c.err, false)
			if got := verdict(write); got != c.write {
				t.Errorf("write\nwant %s\ngot  %s: %v", c.write, got, write)
			}
			if got := verdict(read); got != c.read {
				t.Errorf("read\nwant %s\ngot  %s: %v", c.read, got, read)
			}
			if !strings.HasPrefix(write.Error(), `acquire "balancer": `) {
				t.Errorf("text: %v", write)
			}
			if !reaches(write, c.err) {
				t.Errorf("the driver's error cannot be reached from %v", write)
			}
		})
	}
}

// reaches reports whether the chain of err has an error with the text and type of want.
func reaches(err, want error) bool {
	var found bool
	var walk func(error)
	walk = func(e error) {
		if e == nil || found {
			return
		}
		if fmt.Sprintf("%T %v", e, e) == fmt.Sprintf("%T %v", want, want) {
			found = true
			return
		}
		switch e := e.(type) {
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		}
	}
	walk(err)
	return found
}

func TestOutcome_Unauthorized_NamesWhatToGrant(t *testing.T) { // J1
	t.Parallel()
	var p *catalog.PrivilegeError
	if !errors.As(mongocatalog.Failed(command(13), true), &p) {
		t.Fatal("no *PrivilegeError")
	}
	got := []string{p.Namespace, p.Action}
	assert.Slices(t, []string{"config.locks", "find, insert, update"}, got, "want %q\ngot  %q")
}

func TestOutcome_Text_HasNoSecrets(t *testing.T) { // G11
	t.Parallel()
	for _, text := range []string{
		"dial mongodb://root:s3cret@host:27017/?x=y failed",
		"mongodb+srv://root:s3cret@cluster.example.net",
		`mongodb://root:s3cr@s3cret@host/`,
		`command { saslStart: 1, payload: "s3cret" } failed`,
		`{"pwd": "s3cret", "x": 1}`,
		`password=s3cret&x=y`,
		`{"payload": {"$binary": {"base64": "s3cret"}}}`,
		"client_secret: s3cret",
	} {
		for _, writes := range []bool{true, false} {
			for _, code := range []int32{0, 13, 11000} {
				err := mongocatalog.Failed(mongo.CommandError{Code: code, Message: text}, writes)
				if strings.Contains(err.Error(), "s3cret") {
					t.Errorf("secret in %q", err)
				}
			}
		}
	}
}

func TestOutcome_Text_IsOneBoundedLine(t *testing.T) {
	t.Parallel()
	text := catalog.Shown(errors.New("a\nb\x1b[31m" + strings.Repeat("x", 5000))).Error()
	if strings.ContainsAny(text, "\n\x1b") || len(text) > 700 {
		t.Errorf("%d bytes: %.80q", len(text), text)
	}
}

func TestDuplicateKey_NamesTheIndex(t *testing.T) { // F22
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"Mongod", `E11000 duplicate key error collection: config.locks index: _id_ dup key: ` +
			`{ _id: "x" }`, "_id_"},
		{"Foreign", `E11000 duplicate key error collection: config.locks index: process_1 dup key: ` +
			`{ process: "x" }`, "process_1"},
		{"WithSpaces", `E11000 duplicate key error collection: a.b index: my own index dup key: {}`,
			"my own index"},
		{"NameLooksLikeOne", `E11000 duplicate key error collection: config.locks index: _id_ dup key: ` +
			`{ _id: " index: process_1 dup key" }`, "_id_"},
		{"Unnamed", "E11000 duplicate key", "_id_"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{
				mongo.CommandError{Code: 11000, Message: c.text},
				mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000, Message: c.text}}},
			} {
				if got, ok := mongocatalog.DuplicateKey(err); !ok || got != c.want {
					t.Errorf("want %q\ngot  %q, %v", c.want, got, ok)
				}
			}
		})
	}
	if _, ok := mongocatalog.DuplicateKey(errors.New("E11000")); ok {
		t.Error("an error of no server is a duplicate key")
	}
}
