package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"mongodlm/catalog"
)

// It tries to break: no signature and no session of a command stands in the text of an error, in
// whatever form the command is repeated, whole or cut.
func TestRedact_CommandOfARefusal_HasNoSignature(t *testing.T) {
	t.Parallel()
	const head = `not authorized on locks to execute command { findAndModify: "locks", query: { _id: "a" }, `
	for name, text := range map[string]string{
		"as 4.4 writes it": head + `lsid: { id: UUID("5f0e6b4a-1c52-4d0e-9a57-s3cret000000") }, $clusterTime: { clusterTime: ` +
			`Timestamp(1605000000, 1), signature: { hash: BinData(0, S3CRET), keyId: 6890000000000000001 } }, $db: "locks" }`,
		"cut":       head + `$clusterTime: { clusterTime: Timestamp(1605000000, 1), signature: { hash: BinData(0, S3CRET`,
		"as JSON":   `{"lsid": {"id": {"$binary": {"base64": "s3cret", "subType": "04"}}}, "$db": "locks", "find": "locks" }`,
		"escaped":   `{\"$clusterTime\": {\"signature\": {\"hash\": \"s3cret\"}}, \"$db\": \"locks\", \"find\": \"locks\" }`,
		"alone":     `the signature: s3cret, of "locks" is not valid`,
		"two of it": head + `lsid: { id: s3cret }, a: 1, lsid: { id: s3cret } }`,
	} {
		got := catalog.Redact(text)
		if strings.Contains(strings.ToLower(got), "s3cret") || strings.Contains(got, "lsid") || !strings.Contains(got, "locks") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if text := `E11000 dup key: { _id: "a", hash: "b", signatures: { c: 1 } }`; catalog.Redact(text) != text {
		t.Errorf("taken out: %s", catalog.Redact(text))
	}
}

// It tries to break: who has no user is not told to grant something to it.
func TestPrivilegeError_NoUser_IsNotToldToGrant(t *testing.T) {
	t.Parallel()
	for text, none := range map[string]bool{
		"command find requires authentication": true, "Command hello requires authentication": true,
		"not authorized on config to execute command { find: 1 }": false,
	} {
		e := &catalog.PrivilegeError{Namespace: "config.locks", Action: "find", Err: errors.New(text)}
		if e.NoUser() != none || strings.Contains(e.Error(), "has no user") != none || strings.Contains(e.Error(), "grant") == none {
			t.Errorf("%s: %v", text, e)
		}
	}
}
