package mongocatalog_test

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// Tries to break: what speaks MongoDB's protocol and is none is told by its replies and refused by
// its name, with the reason; and a MongoDB, whatever its hosts are called, is not.
func TestSupported_ProductsThatAreNoMongoDB(t *testing.T) {
	t.Parallel()
	five := []bson.E{e("version", "5.0.0")}
	seven := []bson.E{e("version", "7.0.0")}
	member := func(host string) []bson.E {
		return []bson.E{e("setName", "rs0"), e("hosts", bson.A{host}), e("me", host), e("primary", host)}
	}
	router := []bson.E{e("msg", "isdbgrid")}
	at := func(host string) []bson.E { return append(router, e("me", host)) }
	two := e("ferretdb", bson.D{e("version", "v2.5.0")})
	const amazon, cosmos = "Amazon DocumentDB", "Cosmos DB for MongoDB is not"
	for _, c := range []struct {
		name         string
		build, hello []bson.E
		refusal      string // its name and the reason, empty for a MongoDB
	}{
		{"ReplicaSet", seven, member("db1.example.org:27017"), ""},
		{"HostsNamedAlike", seven, member("docdb.amazonaws.com.example.org:27017"), ""},
		{"HostsOfAtlas", seven, member("ac-1-shard-00-00.abcde.mongodb.net:27017"), ""},
		{"Mongos", seven, router, ""},
		{"InternalOfAnother", seven, append(router, e("internal", bson.D{e("other", 1)})), ""},
		{"AmazonDocumentDB", five, member("a.cluster-x.eu-west-1.docdb.amazonaws.com:27017"), amazon},
		{"AmazonInCapitals", five, member("A.CLUSTER-X.EU-WEST-1.DOCDB.AMAZONAWS.COM.:27017"), amazon},
		{"AmazonElastic", five, at("b.eu-west-1.docdb-elastic.amazonaws.com"), amazon},
		{"CosmosByHost", seven, member("c.mongo.cosmos.azure.com:10255"), cosmos},
		{"CosmosByMark", append(seven, e("_t", "BuildInfoResponse")), router, cosmos},
		{"VCoreByHost", seven, at("c.d.mongocluster.cosmos.azure.com:10260"), "vCore"},
		{"VCoreByVersions", seven, append(router, e("setName", "globaldb"),
			e("internal", bson.D{e("cosmos_versions", bson.A{"1.104-1"})})), "vCore"},
		{"DocumentDBByVersions", seven, append(router,
			e("internal", bson.D{e("documentdb_versions", bson.A{"0.106-0"})})), "DocumentDB on PostgreSQL"},
		{"FerretDB2", append(seven, two), nil, "FerretDB v2.5.0"},
		{"FerretDB2WithoutVersion", append(seven, e("ferretdb", bson.D{})), nil, "FerretDB 2"},
		{"FerretDB1", append(seven, e("ferretdbVersion", "v1.24.2")), nil, "not atomic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := mongocatalog.Describe(raw(t, c.build...), raw(t, c.hello...), "distlock")
			err := mongocatalog.Supported(server, "distlock")
			if (err == nil) != (c.refusal == "") {
				t.Fatalf("%+v: refused: %v", server, err)
			}
			for _, words := range []string{c.refusal, ": ", "use MongoDB 4.4"} {
				if err != nil && !strings.Contains(err.Error(), words) {
					t.Errorf("the text must say %q: %v", words, err)
				}
			}
		})
	}
}

// The same by what Hello really asks.
func TestCatalog_Hello_NamesTheProduct(t *testing.T) {
	t.Parallel()
	s := serve(t, func(bson.Raw) bson.D { return nil })
	s.hello = bson.D{e("internal", bson.D{e("documentdb_versions", bson.A{"0.106-0"})})}
	c := assert.Value(mongocatalog.New(s.client(t), mongocatalog.Options{Database: "distlock"}))(t)
	server := assert.Value(c.Hello(t.Context()))(t)
	if !strings.Contains(server.Product, "DocumentDB") || server.Kind != catalog.ReplicaSet {
		t.Errorf("got %+v", server)
	}
}

// A connection string that names the hosts of such a product is refused before anything is looked
// up or sent, with every other part of it kept to itself.
func TestDial_HostsOfAProduct_AreRefused(t *testing.T) {
	t.Parallel()
	for uri, name := range map[string]string{
		"mongodb://u:secret@x.cluster-y.eu-west-1.docdb.amazonaws.com:27017/?replicaSet=rs0": "Amazon",
		"mongodb://u:secret@127.0.0.1,x.docdb-elastic.amazonaws.com/db":                      "Amazon",
		"mongodb://u:secret@acc.mongo.cosmos.azure.com:10255/?ssl=true":                      "Cosmos",
		"mongodb+srv://u:secret@c.mongocluster.cosmos.azure.com/?tls=true":                   "vCore",
	} {
		for how, dial := range map[string]func() error{
			"by the string": func() error { return assert.Err(mongocatalog.Dial(options.Client(), uri, 0)) },
			"by options": func() error {
				how := options.Client().SetHosts([]string{"c.mongocluster.cosmos.azure.com"})
				if !strings.HasPrefix(uri, "mongodb+srv") {
					how = options.Client().ApplyURI(uri)
				}
				return assert.Err(mongocatalog.Dial(how, "", 0))
			},
		} {
			text := fmt.Sprint(dial())
			if !strings.Contains(text, name) || strings.Contains(text, "secret") {
				t.Errorf("%s %s: %s", uri, how, text)
			}
		}
	}
}
