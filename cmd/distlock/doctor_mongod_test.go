package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/mongodtest"
)

// guarded starts a server that requires passwords, with a user named root. It skips the test if
// MongoDB is not installed. The function as returns the connection string of a user.
func guarded(t *testing.T, opts mongodtest.Options) (d *mongodtest.Deployment, root *mongo.Client,
	as func(user string) string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what starts a mongod")
	}
	p, err := mongodtest.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	if opts.TLS != nil && !p.TLS {
		t.Skipf("mongod %s was built without TLS", p.Version)
	}
	opts.Auth = true
	d = assert.Value(mongodtest.Start(t.Context(), p, opts))(t)
	t.Cleanup(func() { assert.NoErr(t, d.Close()) })
	as = func(user string) string {
		return strings.Replace(d.URI(), "mongodb://", "mongodb://"+user+":"+secretEscaped+"@", 1)
	}
	create := bsontest.D("createUser", "root", "pwd", secret,
		"roles", bson.A{bsontest.D("role", "root", "db", "admin")})
	asAdmin(t, connected(t, d.URI()), create) // the first user needs no password
	return d, connected(t, as("root")), as
}

// A password with characters that a connection string must escape.
const (
	secret        = "n0b0dy/may$see"
	secretEscaped = "n0b0dy%2Fmay%24see"
)

func connected(t *testing.T, uri string) *mongo.Client { return newBaseOf(t, uri).db.Client() }

func asAdmin(t *testing.T, client *mongo.Client, command any) {
	t.Helper()
	assert.Must(t, client.Database("admin").RunCommand(t.Context(), command).Err())
}

// A real server accepts the role that "distlock doctor --role" prints. With that role, "distlock
// doctor" finds no missing privilege and changes no data. If one action is removed from the role,
// the command names that action.
func TestDoctor_RealServer_TriesThePrintedRole(t *testing.T) {
	_, root, as := guarded(t, mongodtest.Options{ReplicaSet: 1})
	out := cli(t, "doctor", "--role", "--json", "--features",
		"locks,lines,history,listings,loops").want(t, 0).out
	var command bson.D
	assert.Must(t, bson.UnmarshalExtJSON([]byte(out), false, &command))
	asAdmin(t, root, command)
	asAdmin(t, root, bsontest.D("createUser", "least", "pwd", secret,
		"roles", bson.A{bsontest.D("role", roleName, "db", "admin")}))
	b := newBaseOf(t, as("root"))
	b.name, b.db = defaultDatabase, root.Database(defaultDatabase)
	examine := func() report {
		t.Helper()
		r := cli(t, "doctor", "--uri", as("least"), "--json", "--features",
			"locks,lines,history,listings,loops")
		if strings.Contains(r.out+r.errOut, "n0b0dy") {
			t.Errorf("the password is shown:\n%s\n%s", r.out, r.errOut)
		}
		return r.report(t)
	}
	r := examine()
	if len(r.MissingPrivileges) > 0 || r.Race != nil || !r.Fit || len(r.Members) != 1 ||
		r.Members[0].State != "primary" {
		t.Errorf("with the whole role: %+v", r)
	}
	if names, err := b.db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("trying has made %q (%v)", names, err)
	}
	fill(b)
	assert.Value(b.db.Collection(catalog.PingsCollection).Indexes().CreateOne(t.Context(),
		mongo.IndexModel{Keys: bsontest.D("x", 1), Options: options.Index().SetExpireAfterSeconds(0)}))(t)
	before := b.all()
	if text := fmt.Sprint(examine().Warnings); !strings.Contains(text, `index "x_1" on distlock.`+
		"lockpings deletes documents by their age") {
		t.Errorf("no warning of an index that deletes documents: %s", text)
	}
	if after := b.all(); before != after {
		t.Errorf("trying has changed\n%s\ninto\n%s", before, after)
	}
	for i, p := range privilegesOf(t, command) {
		for j := range p.Actions {
			less := privilegesOf(t, command)
			action := less[i].Actions[j]
			if less[i].Actions = slices.Delete(less[i].Actions, j, j+1); len(less[i].Actions) == 0 {
				less = slices.Delete(less, i, i+1)
			}
			asAdmin(t, root, bsontest.D("updateRole", roleName, "privileges", less))
			got := examine().MissingPrivileges
			if len(got) != 1 || got[0].Collection != defaultDatabase+"."+p.Resource.Collection ||
				fmt.Sprint(got[0].Actions) != "["+action+"]" {
				t.Errorf("without %s on %s: %+v is missing", action, p.Resource.Collection, got)
			}
		}
	}
}

type privilege struct {
	Resource struct {
		DB         string `bson:"db"`
		Collection string `bson:"collection"`
	} `bson:"resource"`
	Actions []string `bson:"actions"`
}

func privilegesOf(t *testing.T, command bson.D) []privilege {
	t.Helper()
	raw := assert.Value(bson.Marshal(command))(t)
	var doc struct {
		Privileges []privilege `bson:"privileges"`
	}
	assert.Must(t, bson.Unmarshal(raw, &doc))
	return doc.Privileges
}
