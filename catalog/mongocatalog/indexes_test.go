package mongocatalog_test

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
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
// to create an index that exists with other options. If denied is true, the server also refuses to
// drop an index.
func indexServer(t *testing.T, locks []bson.D, denied bool) *fakeServer {
	t.Helper()
	failed := func(code int32) bson.D {
		return bson.D{e("ok", 0.0), e("code", code), e("errmsg", "refused")}
	}
	dropped := false
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
		if command.Lookup("dropIndexes").Type != 0 {
			if denied {
				return failed(13)
			}
			dropped = true
		}
		if command.Lookup("createIndexes").Type != 0 {
			key := command.Lookup("indexes", "0", "key").Document().String()
			there := slices.ContainsFunc(locks, func(d bson.D) bool {
				raw, _ := bson.Marshal(d[1].Value)
				beside := len(d) > 3 && d[3].Key == "sparse" // servers from 5.0 on allow both
				return bson.Raw(raw).String() == key && !beside
			})
			if there && !dropped {
				return failed(85)
			}
		}
		return bson.D{e("ok", 1.0)}
	})
}

// Prepare creates partial indexes, which omit the free locks without waiters. It replaces only the
// index process_1 of an earlier version, because that index contains free locks. It does not change
// the indexes of an operator. SuperfluousIndexes lists a sparse index of an earlier version only if
// the partial index that replaces it exists.
func TestCatalog_Prepare_IndexesThatAreThere(t *testing.T) {
	t.Parallel()
	live := e("partialFilterExpression", bson.D{e("state", bson.D{e("$gt", int32(0))})})
	sparse := e("sparse", true)
	partial := func(field string) bson.E {
		return e("partialFilterExpression", bson.D{e(field, bson.D{e("$exists", true)})})
	}
	process1 := spec("process_1", up("process"), live)
	sharers := spec("sharers.process_1_partial", up("sharers.process"), partial("sharers.process"))
	waiters := spec("waiters.process_1_partial", up("waiters.process"), partial("waiters.process"))
	oldSharers := spec("sharers.process_1", up("sharers.process"), sparse)
	oldWaiters := spec("waiters.process_1", up("waiters.process"), sparse)
	const (
		process      = "create process"
		participants = "create sharers.process, create waiters.process"
	)
	for name, c := range map[string]struct {
		locks   []bson.D
		version string // the server's version; default 4.4
		denied  bool
		want    string // the commands that change indexes
		warning string // a part of the only warning
		drops   string // the indexes that SuperfluousIndexes lists
	}{
		"none": {want: process + ", " + participants},
		"all":  {locks: []bson.D{process1, sharers, waiters}},
		"all under others' names": {locks: []bson.D{spec("a", up("process"), live),
			spec("b", up("sharers.process"), partial("sharers.process")),
			spec("c", up("waiters.process"), partial("waiters.process"))}},
		"an earlier version's sparse ones": {
			locks: []bson.D{process1, oldSharers, oldWaiters}},
		"an earlier version's sparse ones, which a strict client cannot use": {
			version: "5.0.0", want: participants, locks: []bson.D{process1, oldSharers, oldWaiters}},
		"both": {version: "8.0.4", drops: `dropIndex("sharers.process_1"), dropIndex("waiters.process_1")`,
			locks: []bson.D{process1, oldSharers, oldWaiters, sharers, waiters}},
		"both, one of a hand": {version: "8.0.4", locks: []bson.D{process1, sharers, waiters,
			spec("mine", up("sharers.process"), sparse, e("unique", true))}},
		"a hand's over all parties": {want: participants, warning: `"sharers.process_1"`,
			locks: []bson.D{process1, spec("sharers.process_1", up("sharers.process"))}},
		"an earlier version's": {locks: []bson.D{spec("process_1", up("process")), sharers},
			want: "drop process_1, " + process + ", create waiters.process"},
		"an earlier version's, not to be dropped": {denied: true,
			locks: []bson.D{spec("process_1", up("process")), sharers, waiters}, want: "drop process_1"},
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
			server := indexServer(t, c.locks, c.denied)
			server.version = cmp.Or(c.version, "4.4.29")
			store := assert.Value(mongocatalog.New(server.client(t), mongocatalog.Options{}))(t)
			warnings, err := store.Prepare(t.Context())
			var refused *catalog.PrivilegeError
			if c.denied != errors.As(err, &refused) || err != nil && !c.denied {
				t.Errorf("error %v", err)
			}
			if c.warning == "" && len(warnings) > 0 ||
				c.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.warning)) {
				t.Errorf("warnings %q, want %q", warnings, c.warning)
			}
			assert.Equal(t, indexChanges(server.sent()), c.want, "sent\nwant %[2]s\ngot  %[1]s")
			drops := assert.Value(store.SuperfluousIndexes(t.Context()))(t)
			const at = `db.getSiblingDB("config").getCollection("locks").`
			got := strings.ReplaceAll(strings.Join(drops, ", "), at, "")
			assert.Equal(t, got, c.drops, "superfluous\nwant %[2]s\ngot  %[1]s")
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
		if name, ok := command.Lookup("index").StringValueOK(); ok {
			changes = append(changes, "drop "+name)
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
