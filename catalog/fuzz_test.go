package catalog_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// FuzzParse passes arbitrary bytes to ParseLock and ParsePing. No input causes a panic. For a
// malformed document both return the zero value. ParseLock reports a lock as free only if the field
// state is the number zero. A held lock always has a session.
func FuzzParse(f *testing.F) {
	for _, doc := range []bson.D{
		lock("state", int32(0)), lock("state", 2.0), lock("state", nil), lock("state", "0"),
		lock("ts", nil), lock("ts", ts.Hex()), lock("fence", 1.5), lock("_id", int32(5)),
		lock("x", bson.D{field("y", bson.A{1, "z"})}), ping("seq", "x"), ping("ping", nil),
		ping("condemned", true), lock("waiters", bson.A{participant("x", 1), participant("ts", ts)}),
		lock("waiters", int32(5)), lock("waiters", bson.A{bson.D{}, 7}), lock("waiters", nil),
		lock("sharers", bson.A{participant("process", nil)}),
		lock("grants", catalog.GrantLine(ts, 7, "p")),
		replace(replace(lock("mode", "permit"), "limit", int32(2)), "sharers",
			bson.A{participant("ts", ts)}),
		replace(replace(lock("state", int32(0)), "limit", 2.0), "waiters",
			bson.A{participant("mode", "x")}),
		lock("grants", "x 1\n"+ts.Hex()+" 9 p"), lock("limit", int64(1)<<40),
	} {
		raw := marshal(f, doc)
		f.Add([]byte(raw))
		f.Add([]byte(raw[:len(raw)/2]))
	}
	f.Add([]byte(nil))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, bad := catalog.ParseLock(data)
		switch {
		case bad != nil:
			if !reflect.DeepEqual(l, catalog.Lock{}) {
				t.Errorf("a malformed document gave %+v", l)
			}
			if bad.Error() == "" || bad.Field == "" {
				t.Errorf("no text or field: %+v", bad)
			}
		case !l.Held && !numericZero(data):
			t.Errorf("free, but state is no numeric zero: %v", bson.Raw(data))
		case l.Held && (l.TS.IsZero() || l.State <= 0 || l.Fence < 0):
			t.Errorf("held without a session: %+v", l)
		}
		wantOrderly(t, l)
		p, bad := catalog.ParsePing(data)
		if bad != nil && p != (catalog.Ping{}) {
			t.Errorf("a malformed document gave %+v", p)
		}
	})
}

// wantOrderly checks that the fields of a parsed lock agree with each other.
func wantOrderly(t *testing.T, l catalog.Lock) {
	t.Helper()
	for _, p := range slices.Concat(l.Sharers, l.Waiters) {
		if p.TS.IsZero() || p.Process == "" || p.Limit < 0 || p.Takeover < 0 ||
			p.Mode != catalog.Exclusive && p.Mode != catalog.Shared && p.Mode != catalog.Permit {
			t.Errorf("a participant without a session or process: %+v", p)
		}
	}
	shared := l.Mode == catalog.Shared || l.Mode == catalog.Permit
	if shared != (len(l.Sharers) > 0) || shared && (!l.Held || l.Sharers[0].TS != l.TS) ||
		l.Held != (len(l.Holders()) > 0) || l.Limit < 0 {
		t.Errorf("holders: %+v", l)
	}
	for _, a := range slices.Concat(l.Grants, l.GrantsOf(l.Process)) {
		if a.Name != l.Name {
			t.Errorf("grant %+v", a)
		}
	}
}

// numericZero reports whether the field state is the number zero. It must not call ParseLock,
// because the test compares its result with the result of ParseLock.
func numericZero(data []byte) bool {
	v := bson.Raw(data).Lookup("state")
	n, isNumber := v.AsFloat64OK()
	return isNumber && n == 0
}

// Redact removes the signature and the session id of a command from a server's error text, even if
// the server has truncated the command.
func TestRedact_CommandOfARefusal_HasNoSignature(t *testing.T) {
	t.Parallel()
	const head = `not authorized on locks to execute command { findAndModify: "locks", ` +
		`query: { _id: "a" }, `
	const signed = `$clusterTime: { clusterTime: Timestamp(1605000000, 1), ` +
		`signature: { hash: BinData(0, S3CRET)`
	for name, text := range map[string]string{
		"as 4.4 writes it": head + `lsid: { id: UUID("5f0e6b4a-1c52-4d0e-9a57-s3cret000000") }, ` +
			signed + `, keyId: 6890000000000000001 } }, $db: "locks" }`,
		"cut": head + strings.TrimSuffix(signed, ")"),
		"as JSON": `{"lsid": {"id": {"$binary": {"base64": "s3cret", "subType": "04"}}}, ` +
			`"$db": "locks", "find": "locks" }`,
		"escaped": `{\"$clusterTime\": {\"signature\": {\"hash\": \"s3cret\"}}, ` +
			`\"$db\": \"locks\", \"find\": \"locks\" }`,
		"alone":     `the signature: s3cret, of "locks" is not valid`,
		"two of it": head + `lsid: { id: s3cret }, a: 1, lsid: { id: s3cret } }`,
	} {
		got := strings.ToLower(catalog.Redact(text))
		if !strings.Contains(got, "locks") || strings.Contains(got, "s3cret") ||
			strings.Contains(got, "lsid") {
			t.Errorf("%s: %s", name, catalog.Redact(text))
		}
	}
	const text = `E11000 dup key: { _id: "a", hash: "b", signatures: { c: 1 } }`
	assert.Equal(t, catalog.Redact(text), text, "taken out: %s, of %s")
}

// If the connection has no user, the text of a PrivilegeError does not tell the operator to grant a
// privilege.
func TestPrivilegeError_NoUser_DoesNotAskForGrants(t *testing.T) {
	t.Parallel()
	for text, none := range map[string]bool{
		"command find requires authentication": true, "Command hello requires authentication": true,
		"not authorized on config to execute command { find: 1 }": false,
	} {
		e := &catalog.PrivilegeError{Namespace: "config.locks", Action: "find", Err: errors.New(text)}
		has := func(text string) bool { return strings.Contains(e.Error(), text) }
		if e.NoUser() != none || has("has no user") != none || has("grant") == none {
			t.Errorf("%s: %v", text, e)
		}
	}
}
