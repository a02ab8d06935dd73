package mongocatalog_test

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

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
				"server\nwant %[2]+v\ngot  %[1]+v")
		})
	}
}

func TestSupported(t *testing.T) { // E13, E14
	t.Parallel()
	for _, c := range []struct {
		name     string
		server   catalog.Server
		database string
		refusal  string // part of the text, empty when supported
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
				t.Errorf("the text must say %q and what to do: %v", c.refusal, err)
			}
		})
	}
}
