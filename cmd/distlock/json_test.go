package main

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/singleton"
)

// keysOf returns the fields of a JSON object, each with the fields of its value or of its first
// element in parentheses.
func keysOf(t *testing.T, text string) string {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(got)) {
		all = append(all, key)
		var row any = got[key]
		if list, is := row.([]any); is && len(list) > 0 {
			row = list[0]
		}
		if of, is := row.(map[string]any); is {
			all = append(all, "("+strings.Join(slices.Sorted(maps.Keys(of)), " ")+")")
		}
	}
	return strings.Join(all, " ")
}

// Programs read the fields of the JSON output by their names. Some output has each field that
// docs/operations.md lists. A list is never null.
func TestJSON_Fields(t *testing.T) {
	b := newBase(t)
	fill(b)
	fillShared(b)
	now := bson.NewDateTimeFromTime(clock.System().Now().Wall)
	b.insert(history.Collection, history.Entry{ID: bson.NewObjectID(), At: now.Time(), Kind: "lost", Name: "alive"})
	b.insert(singleton.RecordsCollection, bsontest.D("_id", "report", "kind", "loop", "state", "done",
		"fence", int64(1), "rev", int64(1), "seen", now, "runs", bson.A{bsontest.D("state", "done", "process", "p",
			"fence", int64(1), "begun", now, "ended", now, "tookMicros", int64(1))}))
	b.insert(singleton.RecordsCollection, bsontest.D("_id", "ahead", "kind", "slots", "state", "done", "fence",
		int64(1), "rev", int64(1), "seen", now, "slot", bson.NewDateTimeFromTime(now.Time().Add(30*24*time.Hour))))
	b.held("claim:"+b.name+".jobs:queue:1", 1)
	b.insert("jobs", bsontest.D("_id", 1, "claim", bsontest.D("state", "dead", "attempts", int64(1), "errors",
		bson.A{bsontest.D("attempt", int64(1), "process", "p", "error", "x", "at", now)})))
	const (
		lock = "locks (fence held heldForMS leaseAgeMS leaseMS limit marks mode name pingAgeMS process session " +
			"since waiters who why)"
		event = "events (at cause event evidence fence heldMS leads mode name previous process rule session " +
			"waitedMS why)"
		bad    = "malformed (collection field id problem remedy)"
		counts = "claimed collection database dead done later ready retrying"
	)
	documented := assert.Value(os.ReadFile("../../docs/operations.md"))(t)
	_, list, found := strings.Cut(string(documented), "the list is cut off. Fields:")
	assert.Equal(t, found, true, "the list of fields is found: %v, want %v")
	list, _, _ = strings.Cut(list, "\n## ")
	const optional = "ps doctor claims oddRows odd noField due paused" // commands, and fields of other queues
	var all strings.Builder
	for _, c := range []struct{ args, want string }{
		{"locks", "database line (waiters) " + lock + " " + bad + " neverUsed"},
		{"locks condemned", "condemned (at by evidence process) database history (database events limited malformed) " +
			"ifTheHolderDiedNow (lostInMS next others passedOver process rule takenAtTheLatestInMS takenInMS " +
			"takeoverMS) line (waiters) " + lock + " malformed neverUsed noHistory"},
		{"ps", "database " + bad + " processes (clockAheadMS holds marks pingAgeMS pingEveryMS process takeoverMS " +
			"waits)"},
		{"history", "database " + event + " limited malformed"},
		{"loops", "database loops (begun failures kind lastError malformed missed name next process rounds slot state stopped)"},
		{"loops report", "database kind name runs (attempt begun ended error fence process slot state tookMS)"},
		{"loops ahead --forget-future", "database name repaired"},
		{"claims", "database more queues (" + counts + ")"},
		{"claims jobs", counts},
		{"claims jobs --dead", "collection database dead (attempts deadAt errors id lastError) more"},
		{"claims jobs --repair", "collection database repaired"},
		{"claims jobs --retry 9", "collection database retried"},
		{"claims jobs --discard 9", "collection database discarded"},
		{"claims pause jobs", "collection database paused"},
		{"doctor --rounds 1 --contenders 2", "changeStreams clock (roundTripMS serverAheadMS) configServer " +
			"createdIndexes database embedded fit hosts kind members missingIndexes missingPrivileges " +
			"pipelineUpdates race (acquire compareAndSet contenders) refused transactions version warnings weaker " +
			"writeConcern"},
	} {
		out := b.cli(append(strings.Fields(c.args), "--json")...).out
		all.WriteString(out)
		if out == "" {
			t.Errorf("%s prints nothing", c.args)
			continue
		}
		if got := keysOf(t, out); got != c.want {
			t.Errorf("%s has the fields\n%s\nwant\n%s", c.args, got, c.want)
		}
	}
	for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(list, -1) {
		if !strings.Contains(all.String(), `"`+name[1]+`":`) && !slices.Contains(strings.Fields(optional), name[1]) {
			t.Errorf("docs/operations.md lists the field %s, which no output has", name[1])
		}
	}
}

// The help of each command documents each field of its JSON output.
func TestJSON_Help_DocumentsEachField(t *testing.T) {
	t.Parallel()
	for command, outputs := range map[string][]any{
		"locks": {listing{}, details{}}, "ps": {processList{}}, "history": {eventList{}},
		"loops":  {loopList{}, roundList{}, forgetResult{}},
		"claims": {queueList{}, backlog{}, deadList{}, changeResult{}}, "doctor": {report{}},
	} {
		help := string(assert.Value(helpFiles.ReadFile("help/" + command + ".txt"))(t))
		_, help, _ = strings.Cut(help, "\nJSON fields")
		for _, output := range outputs {
			for _, field := range fieldsOf(reflect.TypeOf(output)) {
				known := command == "locks" && strings.Contains(" events limited event name previous mode leads why "+
					"cause evidence waitedMS heldMS ", " "+field+" ") // see history
				if !known && !regexp.MustCompile(`\b`+field+`\b`).MatchString(help) {
					t.Errorf("distlock %s -h does not document %s", command, field)
				}
			}
		}
	}
}

// fieldsOf returns the names of the JSON fields of a type and of its parts.
func fieldsOf(of reflect.Type) (all []string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return fieldsOf(of.Elem())
	case reflect.Struct:
		for f := range of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" {
				all = append(all, name)
			}
			if name != "" || f.Anonymous {
				all = append(all, fieldsOf(f.Type)...)
			}
		}
	}
	return all
}

// No list in the output is null, even for a malformed lock.
func TestJSON_MalformedLock_NoListIsNull(t *testing.T) {
	b := newBase(t)
	fill(b)
	if out := b.cli("locks", "bad-state", "--json").want(t, 0).out; strings.Contains(out, "null") {
		t.Errorf("the output has a null:\n%s", out)
	}
}
