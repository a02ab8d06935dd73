package mongocatalog_test

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// spec returns an index description as in a reply to listIndexes.
func spec(name string, keys bson.D, more ...bson.E) bson.D {
	return append(bson.D{e("v", int32(2)), e("key", keys), e("name", name)}, more...)
}

func up(fields ...string) bson.D {
	keys := bson.D{}
	for _, f := range fields {
		keys = append(keys, e(f, int32(1)))
	}
	return keys
}

// indexServer returns a server with the given indexes on the collection locks. The server refuses
// to create an index that exists with other options.
func indexServer(t *testing.T, locks []bson.D) *fakeServer {
	t.Helper()
	return serve(t, func(command bson.Raw) bson.D {
		if on := command.Lookup("listIndexes"); on.Type != 0 {
			batch := bson.A{spec("_id_", up("_id"))}
			if on.StringValue() == "locks" {
				for _, d := range locks {
					batch = append(batch, d)
				}
			} else {
				batch = append(batch, spec("ping_1", up("ping")))
			}
			return bson.D{e("ok", 1.0), e("cursor", bson.D{
				e("id", int64(0)), e("ns", "config.x"), e("firstBatch", batch),
			})}
		}
		if command.Lookup("createIndexes").Type != 0 {
			key := command.Lookup("indexes", "0", "key").Document().String()
			there := slices.ContainsFunc(locks, func(d bson.D) bool {
				raw, _ := bson.Marshal(d[1].Value)
				return bson.Raw(raw).String() == key
			})
			if there {
				return bson.D{e("ok", 0.0), e("code", int32(85)), e("errmsg", "refused")}
			}
		}
		return bson.D{e("ok", 1.0)}
	})
}

// Prepare creates partial indexes, which leave out the free locks without waiters. It does not
// change the indexes of an operator.
func TestCatalog_Prepare_IndexesThatAreThere(t *testing.T) {
	t.Parallel()
	live := e("partialFilterExpression", bson.D{e("state", bson.D{e("$gt", int32(0))})})
	partial := func(field string) bson.E {
		return e("partialFilterExpression", bson.D{e(field, bson.D{e("$exists", true)})})
	}
	process1 := spec("process_1", up("process"), live)
	sharers := spec("sharers.process_1_partial", up("sharers.process"), partial("sharers.process"))
	waiters := spec("waiters.process_1_partial", up("waiters.process"), partial("waiters.process"))
	const (
		process      = "create process"
		participants = "create sharers.process, create waiters.process"
	)
	for name, c := range map[string]struct {
		locks   []bson.D
		want    string // the commands that change indexes
		warning string // a part of the only warning
	}{
		"none": {want: process + ", " + participants},
		"all":  {locks: []bson.D{process1, sharers, waiters}},
		"all under others' names": {locks: []bson.D{spec("a", up("process"), live),
			spec("b", up("sharers.process"), partial("sharers.process")),
			spec("c", up("waiters.process"), partial("waiters.process"))}},
		"a hand's over all parties": {want: participants, warning: `"sharers.process_1"`,
			locks: []bson.D{process1, spec("sharers.process_1", up("sharers.process"))}},
		"a hand's with the same keys": {locks: []bson.D{spec("mine", up("process")), sharers, waiters},
			want: process, warning: `"mine"`},
		"a hand's that is unique": {want: process, warning: `"process_1"`,
			locks: []bson.D{spec("process_1", up("process"), e("unique", true)), sharers, waiters}},
		"a config server's own": {want: process + ", " + participants,
			locks: []bson.D{spec("ts_1", up("ts")), spec("state_1_process_1", up("state", "process"))}},
		"one that deletes pings": {locks: []bson.D{process1, sharers, waiters,
			spec("old pings", up("when"), e("expireAfterSeconds", int32(3600)))}, warning: `"old pings"`},
		"the keys in another order": {want: process,
			locks: []bson.D{spec("x", up("process", "state")), sharers, waiters}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := indexServer(t, c.locks)
			store := assert.Value(mongocatalog.New(server.client(t), mongocatalog.Options{}))(t)
			warnings, err := store.Prepare(t.Context())
			assert.NoErr(t, err)
			if c.warning == "" && len(warnings) > 0 ||
				c.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.warning)) {
				t.Errorf("warnings %q, want %q", warnings, c.warning)
			}
			assert.Equal(t, indexChanges(server.sent()), c.want, "sent\nwant %[2]s\ngot  %[1]s")
			expiring := assert.Value(store.ExpiringIndexes(t.Context()))(t)
			other := func(warning string) bool { return !strings.Contains(warning, "deletes documents") }
			assert.Slices(t, expiring, slices.DeleteFunc(warnings, other),
				"expiring are %q, want %q as Prepare")
		})
	}
}

// indexChanges lists the created and the dropped indexes. It marks an index that contains free
// locks.
func indexChanges(sent []bson.Raw) string {
	var changes []string
	for _, command := range sent {
		if command.Lookup("dropIndexes").Type != 0 {
			changes = append(changes, "drop")
		}
		made, ok := command.Lookup("indexes", "0").DocumentOK()
		if !ok {
			continue
		}
		keys, _ := made.Lookup("key").Document().Elements()
		change := "create " + keys[0].Key()
		if made.Lookup("partialFilterExpression").Type == 0 || made.Lookup("sparse").Type != 0 {
			change += " over free locks, or sparse"
		}
		changes = append(changes, change)
	}
	return strings.Join(changes, ", ")
}
