package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/mongodtest"
)

// A private mongod serves only one test. If no mongod is available, the test is skipped. The test
// must not be parallel, because a starting mongod delays the heartbeats of other tests.
func private(t *testing.T, opts mongodtest.Options) *mongodtest.Deployment {
	t.Helper()
	startAll() // the shared deployments first
	p, err := mongodtest.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	d := assert.Value(mongodtest.Start(t.Context(), p, opts))(t)
	t.Cleanup(func() { assert.NoErr(t, d.Close()) })
	return d
}

// secured is a mongod that requires passwords, with a client of its user root.
type secured struct {
	*mongodtest.Deployment
	t    *testing.T
	root *mongo.Client
}

func startSecured(t *testing.T, opts mongodtest.Options) *secured {
	t.Helper()
	opts.Auth = true
	s := &secured{Deployment: private(t, opts), t: t}
	s.root = privateClient(t, options.Client().ApplyURI(s.URI())) // the server has no users yet
	s.user("root", bson.D{field("role", "root"), field("db", "admin")})
	s.root = privateClient(t, options.Client().ApplyURI(s.as("root")))
	return s
}

// The result is the connection string of the user.
func (s *secured) as(user string) string {
	return strings.Replace(s.URI(), "mongodb://", "mongodb://"+user+":"+password+"@", 1)
}

func (s *secured) command(doc bson.D) {
	s.t.Helper()
	assert.Must(s.t, s.root.Database("admin").RunCommand(s.t.Context(), doc).Err())
}

func (s *secured) user(name string, role bson.D) {
	s.t.Helper()
	s.command(bson.D{field("createUser", name), field("pwd", plainPassword),
		field("roles", bson.A{role})})
}

func userConfig(uri string) distlock.Config {
	return distlock.Config{
		URI: uri, Database: "distlock", Ping: 200 * time.Millisecond, Takeover: 20 * time.Second,
		CommandTimeout: 2 * time.Second, Tuning: distlock.Tuning{ReleasePause: 10 * time.Millisecond},
	}
}

// G11: If the password is wrong, the error does not contain it. If a privilege on the locks or on a
// collection of rows is missing, the error names the missing actions and their collection. The user
// reader can only read the database distlock. The user pinger can only use the collection
// lockpings.
func TestMissingPrivileges_AreNamed(t *testing.T) {
	d := startSecured(t, mongodtest.Options{})
	d.user("reader", bson.D{field("role", "read"), field("db", "distlock")})
	d.command(bson.D{
		field("createRole", "pings"), field("roles", bson.A{}),
		field("privileges", bson.A{bson.D{
			field("resource", bson.D{field("db", "distlock"), field("collection", "lockpings")}),
			field("actions", bson.A{"find", "insert", "update", "remove"}),
		}}),
	})
	d.user("pinger", bson.D{field("role", "pings"), field("db", "admin")})
	_, err := distlock.New(t.Context(), userConfig(strings.Replace(d.as("root"), "see", "sea", 1)))
	if err == nil {
		t.Fatal("a wrong password was accepted")
	}
	wantNoSecret(t, err.Error())
	_, err = distlock.New(t.Context(), userConfig(d.as("reader")))
	wantPrivilege(t, err, "distlock.lockpings", "insert", "update")
	m := newManager(t, userConfig(d.as("pinger")))
	_, err = m.Lock("balancer").TryLock(t.Context())
	wantPrivilege(t, err, "distlock.locks", "insert", "update")
	assert.NoErr(t, m.Close(t.Context()))

	m = newManager(t, userConfig(d.as("root")))
	defer func() { assert.NoErr(t, m.Close(context.WithoutCancel(t.Context()))) }()
	as := func(user string) *mongo.Collection {
		client := privateClient(t, options.Client().ApplyURI(d.as(user)))
		return client.Database("distlock").Collection("rows")
	}
	root, reader, pinger := as("root"), as("reader"), as("pinger")
	_, err = claim.New[job](t.Context(), m, pinger, claim.Config{})
	wantPrivilege(t, err, "distlock.rows", "listIndexes")
	_, err = claim.New[job](t.Context(), m, reader, claim.Config{})
	wantPrivilege(t, err, "distlock.rows", "createIndex")
	const command = `getCollection("rows").createIndex({"claim.state":1,"claim.notBefore":1})`
	if !strings.Contains(err.Error(), command) {
		t.Errorf("the error does not contain %s: %v", command, err)
	}
	assert.Value(claim.New[job](t.Context(), m, root, claim.Config{}))(t)
	insert(t, root, job{ID: 1})
	q, err := claim.New[job](t.Context(), m, reader, claim.Config{})
	assert.Must(t, err)
	defer func() { assert.NoErr(t, q.Close(context.WithoutCancel(t.Context()))) }()
	err = q.Run(t.Context(), func(context.Context, *claim.Row[job]) error { return nil })
	wantPrivilege(t, err, "distlock.rows", "find", "update")
}

func wantPrivilege(t *testing.T, err error, namespace string, actions ...string) {
	t.Helper()
	var missing *distlock.PrivilegeError
	if !errors.As(err, &missing) {
		t.Fatalf("want a *PrivilegeError, got %v", err)
	}
	if missing.Namespace != namespace {
		t.Errorf("namespace: want %s, got %s", namespace, missing.Namespace)
	}
	for _, action := range actions {
		if !strings.Contains(missing.Action, action) {
			t.Errorf("actions %q do not name %s", missing.Action, action)
		}
	}
	wantNoSecret(t, err.Error())
}

// The password of all users, escaped for a connection string and plain.
const (
	password      = "n0b0dy%2Fmay%24see"
	plainPassword = "n0b0dy/may$see"
)

func wantNoSecret(t testing.TB, text string) {
	t.Helper()
	for _, secret := range []string{password, plainPassword, "n0b0dy"} {
		if strings.Contains(text, secret) {
			t.Errorf("the password is in %q", text)
		}
	}
}
