package mongocatalog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

func raw(t *testing.T, fields ...bson.E) bson.Raw {
	t.Helper()
	return assert.Value(bson.Marshal(append(bson.D{}, fields...)))(t)
}

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func TestDescribe_EveryDeployment(t *testing.T) {
	t.Parallel()
	election := bson.ObjectID{0x7f, 0xff, 0xff, 0xff, 11: 0x2a}
	clock := e("localTime", bson.DateTime(1000))
	version := raw(t, e("version", "4.4.0-rc2"))
	member := []bson.E{e("setName", "c"), e("setVersion", int32(3)), e("electionId", election), clock}
	ferret := raw(t, e("version", "7.0.42"), e("ferretdbVersion", "v1.24.2"))
	front := raw(t, e("version", "7.0.42"), e("ferretdbVersion", "v1.24.2"),
		e("mongodlmFront", true))
	topology := e("topologyVersion", bson.D{e("processId", election)})
	base := catalog.Server{
		Version: "4.4.0-rc2", Time: time.UnixMilli(1000).UTC(), PipelineUpdates: true,
	}
	const term = "7fffffff000000000000002a/3"
	for _, c := range []struct {
		name     string
		database string
		build    bson.Raw
		hello    []bson.E
		want     func(*catalog.Server)
	}{
		{"ReplicaSet_OwnDatabase", "distlock", version, member, func(s *catalog.Server) {
			s.Kind, s.Primary, s.Transactions, s.ChangeStreams = catalog.ReplicaSet, term, true, true
		}},
		{"ReplicaSet_Config", "config", version, member, func(s *catalog.Server) {
			s.Kind, s.Primary = catalog.ReplicaSet, term
		}},
		{"ConfigServer_Config", "config", version, append(member, e("configsvr", int32(2))),
			func(s *catalog.Server) {
				s.Kind, s.Primary, s.Transactions = catalog.ReplicaSet, term, true
				s.ConfigServer = true
			}},
		{"ConfigServerThatIsAShard_OwnDatabase", "distlock", version,
			append(member, e("configsvr", int32(2))), func(s *catalog.Server) {
				s.Kind, s.Primary, s.Transactions, s.ChangeStreams = catalog.ReplicaSet, term, true, true
				s.ConfigServer = true
			}},
		{"Standalone", "distlock", version, []bson.E{clock, topology}, func(s *catalog.Server) {
			s.Kind, s.Primary = catalog.Standalone, election.Hex()
		}},
		{"StandaloneOfOldProtocol", "distlock", version, []bson.E{clock}, func(s *catalog.Server) {
			s.Kind = catalog.Standalone
		}},
		{"Mongos", "distlock", version, []bson.E{clock, e("msg", "isdbgrid"), topology},
			func(s *catalog.Server) {
				s.Kind, s.Transactions, s.ChangeStreams = catalog.Mongos, true, true
				s.Time = time.Time{}
			}},
		{"FerretDB", "distlock", ferret, []bson.E{clock}, func(s *catalog.Server) {
			s.Kind, s.Version, s.PipelineUpdates = catalog.FerretDB, "v1.24.2", false
		}},
		{"EmbeddedServer", "config", front, []bson.E{clock}, func(s *catalog.Server) {
			s.Kind, s.Version, s.PipelineUpdates = catalog.FerretDB, "v1.24.2", false
			s.Front = true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := base
			c.want(&want)
			assert.Equal(t, mongocatalog.Describe(c.build, raw(t, c.hello...), c.database), want,
				"server\nwant %+[2]v\ngot  %+[1]v")
		})
	}
}

func TestSupported(t *testing.T) { // E13, E14
	t.Parallel()
	for _, c := range []struct {
		name     string
		server   catalog.Server
		database string
		refusal  string // part of the error; empty for a supported server
	}{
		{"Memory", catalog.Server{Kind: catalog.Memory}, "config", ""},
		{"FirstVersion", catalog.Server{Kind: catalog.ReplicaSet, Version: "4.4.0-rc2"}, "config", ""},
		{"Standalone", catalog.Server{Kind: catalog.Standalone, Version: "8.0.4"}, "config", ""},
		{"TwoDigits", catalog.Server{Kind: catalog.ReplicaSet, Version: "10.0.1"}, "config", ""},
		{"TooOld", catalog.Server{Kind: catalog.ReplicaSet, Version: "4.2.24"}, "distlock", "4.4"},
		{"MuchTooOld", catalog.Server{Kind: catalog.Standalone, Version: "3.6.3"}, "distlock", "4.4"},
		{"NoVersion", catalog.Server{Kind: catalog.Standalone}, "distlock", "4.4"},
		{"Nonsense", catalog.Server{Kind: catalog.Standalone, Version: "x.y"}, "distlock", "4.4"},
		{"Mongos", catalog.Server{Kind: catalog.Mongos, Version: "7.0.1"}, "distlock", ""},
		{"MongosConfig", catalog.Server{Kind: catalog.Mongos, Version: "7.0.1"}, "config", "mongos"},
		{"BareFerretDB", catalog.Server{Kind: catalog.FerretDB, Version: "v1.24.2"}, "distlock",
			"configserver"},
		{"FerretDBOfNoVersion", catalog.Server{Kind: catalog.FerretDB}, "distlock", "configserver"},
		{"FrontedFerretDB", catalog.Server{Kind: catalog.FerretDB, Version: "v1.24.2", Front: true},
			"config", ""},
		{"FerretDB2", catalog.Server{Kind: catalog.FerretDB, Version: "v2.1.0"}, "distlock",
			"FerretDB v2.1.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := mongocatalog.Supported(c.server, c.database)
			if (err == nil) != (c.refusal == "") {
				t.Fatalf("refused: %v", err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.refusal) ||
				!strings.Contains(err.Error(), "; ")) {
				t.Errorf("the text must contain %q and an alternative: %v", c.refusal, err)
			}
		})
	}
}

// Supported recognizes products that imitate MongoDB, such as Amazon DocumentDB, by their replies
// to buildInfo and hello. Its error contains the name of the product and the reason. Supported
// accepts a MongoDB server whose host name only resembles the host names of such a product.
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
		refusal      string // the product's name and the reason; empty for MongoDB
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
					t.Errorf("the text must contain %q: %v", words, err)
				}
			}
		})
	}
}

// Dial refuses a host of an unsupported product, such as Amazon DocumentDB, before it sends a DNS
// query or a command. The error does not contain the password.
func TestDial_HostsOfAProduct_AreRefused(t *testing.T) {
	t.Parallel()
	for uri, name := range map[string]string{
		"mongodb://u:secret@x.cluster-y.eu-west-1.docdb.amazonaws.com:27017/?replicaSet=rs0": "Amazon",
		"mongodb://u:secret@127.0.0.1,x.docdb-elastic.amazonaws.com/db":                      "Amazon",
		"mongodb://u:secret@acc.mongo.cosmos.azure.com:10255/?ssl=true":                      "Cosmos",
		"mongodb+srv://u:secret@c.mongocluster.cosmos.azure.com/?tls=true":                   "vCore",
	} {
		for how, dial := range map[string]func() error{
			"by the string": func() error { return assert.Err(mongocatalog.Dial(options.Client(), uri, 0, "")) },
			"by options": func() error {
				how := options.Client().SetHosts([]string{"c.mongocluster.cosmos.azure.com"})
				if !strings.HasPrefix(uri, "mongodb+srv") {
					how = options.Client().ApplyURI(uri)
				}
				return assert.Err(mongocatalog.Dial(how, "", 0, ""))
			},
		} {
			text := fmt.Sprint(dial())
			if !strings.Contains(text, name) || strings.Contains(text, "secret") {
				t.Errorf("%s %s: %s", uri, how, text)
			}
		}
	}
}
