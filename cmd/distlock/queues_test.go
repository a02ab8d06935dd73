package main

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/bsontest"
)

// Without a name all queues are listed, with the counts of their rows. Without queues the text
// names the missing argument.
func TestClaims_NoCollection_ListsTheQueues(t *testing.T) {
	b := newBase(t)
	b.cli("claims").want(t, exitFailed, "nothing was ever locked there")
	defer func() { // a printed name is accepted, for reading and for changes
		b.cli("claims", b.name+".mail").want(t, 0, "1 ready, 0 claimed", "2 dead", b.name+".mail")
		b.cli("claims", b.name+".mail", "--dead", "--json").want(t, 0, `"collection": "mail"`)
		b.cli("claims", b.name+".mail", "--retry", "all").want(t, 0, "2 dead rows")
		b.cli("claims", b.name+".mai").want(t, exitFailed, "there is no collection")
	}()
	b.hold("job", 1)
	b.cli("claims").want(t, 0, "no worker of a queue", "COLLECTION")
	for _, lock := range []string{":claim:s1", ":claim:s2", ":claim:refused"} {
		b.held("claim:"+b.name+".mail"+lock, 1)
	}
	b.held("claim:"+b.name+".empty:claim:s1", 1)
	b.held("claim:odd", 1)
	for _, state := range []string{"dead", "dead", "done"} {
		b.insert("mail", bsontest.D("claim", bsontest.D("state", state)))
	}
	b.insert("mail", bson.D{})
	b.cli("claims").want(t, 0, "QUEUE", b.name+".mail", b.name+".empty",
		"1      0      0        0         2     1\n")
	b.cli("claims", "--json").want(t, 0, `"collection": "mail"`, `"dead": 2`, `"more": false`)
}
