package mongocatalog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

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
	codes := func(codes ...int32) (errs []error) {
		for _, code := range codes {
			errs = append(errs, command(code))
		}
		return errs
	}
	for _, c := range []struct {
		name        string
		write, read string
		errs        []error
	}{
		{"NoConnection", unavailable, unavailable, []error{
			topology.ServerSelectionError{Wrapped: context.DeadlineExceeded},
			mongo.ErrClientDisconnected, topology.ConnectionError{Wrapped: io.EOF},
			topology.WaitQueueTimeoutError{Wrapped: context.DeadlineExceeded},
		}},
		{"NotNow", unavailable, unavailable, append(codes(10107, 13435, 371), written(10107))}, // E6
		{"Overloaded", unavailable, unavailable, []error{
			command(462, of82...), command(463, of90...), command(433, of90...),
		}},
		{"Denied", denied, denied, []error{command(13), written(13)}}, // J1
		// The server's codes for: document too large, wrong type, bad value, duplicate key, failed
		// validation, write to a view, sharding not enabled, and a config server that refuses user
		// databases.
		{"Refused", notApplied, notApplied, append(codes(10334, 17419, 14, 2, 11000, 121, 166, 193, 14037),
			written(17420), written(11000), command(91, driver.NoWritesPerformed))},
		{"EndedBefore", notApplied, notApplied, []error{ // I13
			context.Canceled, context.DeadlineExceeded,
			fmt.Errorf("x: %w", driver.ErrDeadlineWouldBeExceeded),
		}},
		{"ConnectionBroken", unknown, unavailable, []error{ // D8
			broken(io.EOF), broken(context.DeadlineExceeded), broken(context.Canceled),
			broken(driver.ErrDeadlineWouldBeExceeded),
			broken(topology.ConnectionError{Wrapped: &net.OpError{
				Op: "read", Err: errors.New("reset by peer")}}),
			broken(topology.ConnectionError{ConnectionID: "c",
				Wrapped: errors.New("error occurred during connection handshake")}),
		}},
		// The server's codes for: primary stepped down, shutdown, election, time limit exceeded, and
		// command or cursor killed.
		{"Interrupted", unknown, unavailable, codes(189, 11600, 11602, 91, 50, 262, 11601, 43, 175, 237)},
		{"OverloadedWithoutPromise", unknown, unavailable, []error{
			command(462, of82[0]), command(463),
			mongo.WriteException{WriteConcernError: concern, Labels: of90},
		}},
		{"WriteConcern", unknown, notApplied, []error{ // E5
			mongo.WriteException{WriteConcernError: concern},
			mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 10107}},
			mongo.WriteException{
				WriteConcernError: concern, Labels: []string{driver.NoWritesPerformed}},
		}},
		{"Anything", unknown, notApplied, append(codes(112, 424242, 14031),
			errors.New("malformed wire message"), fmt.Errorf("x: %w", context.DeadlineExceeded))},
	} {
		for _, err := range c.errs {
			write, read := mongocatalog.Failed(err, true), mongocatalog.Failed(err, false)
			if got := verdict(write); got != c.write {
				t.Errorf("%s: write\nwant %s\ngot  %s: %v", c.name, c.write, got, write)
			}
			if got := verdict(read); got != c.read {
				t.Errorf("%s: read\nwant %s\ngot  %s: %v", c.name, c.read, got, read)
			}
			if !strings.HasPrefix(write.Error(), `acquire "balancer": `) {
				t.Errorf("text: %v", write)
			}
			if !reaches(write, err) {
				t.Errorf("the driver's error cannot be reached from %v", write)
			}
		}
	}
}

// reaches reports whether err wraps an error with the text and the type of want.
func reaches(err, want error) bool {
	found := reflect.New(reflect.TypeOf(want))
	return errors.Is(err, want) ||
		errors.As(err, found.Interface()) && found.Elem().Interface().(error).Error() == want.Error()
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
