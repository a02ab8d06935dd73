package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// It tries to break: no signature and no session of a command stands in the text of an error, in
// whatever form the command is repeated, whole or cut.
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

// It tries to break: who has no user is not told to grant something to it.
func TestPrivilegeError_NoUser_IsNotToldToGrant(t *testing.T) {
	t.Parallel()
	for text, none := range map[string]bool{
		"command find requires authentication": true, "Command hello requires authentication": true,
		"not authorized on config to execute command { find: 1 }": false,
	} {
		e := &catalog.PrivilegeError{Namespace: "config.locks", Action: "find", Err: errors.New(text)}
		says := func(words string) bool { return strings.Contains(e.Error(), words) }
		if e.NoUser() != none || says("has no user") != none || says("grant") == none {
			t.Errorf("%s: %v", text, e)
		}
	}
}
