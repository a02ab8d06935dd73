package main

import (
	"os"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxInherited bounds how many locks around it a run knows of: the innermost.
const maxInherited = 100

// inherited are the lock sessions that every run around this one holds until this one has ended: a
// circle through them is a deadlock. They stand in the environment as hexadecimal numbers with
// commas between them, the outermost first, and are no secret: they stand in the lock documents,
// and open nothing. What is no such number is left out; one that holds nothing counts for nothing.
func inherited() []bson.ObjectID { return inheritedOf(os.Getenv(envHeld)) }

func inheritedOf(value string) (held []bson.ObjectID) {
	for word := range strings.SplitSeq(value, ",") {
		ts, err := bson.ObjectIDFromHex(word)
		if err == nil && !slices.Contains(held, ts) {
			held = append(held, ts)
		}
	}
	return held[max(0, len(held)-maxInherited):]
}

// bequeathed is what a command finds in its environment: what its run has inherited and holds.
func bequeathed(held []bson.ObjectID, own bson.ObjectID) string {
	words := make([]string, 0, len(held)+1)
	for _, ts := range append(held, own) {
		words = append(words, ts.Hex())
	}
	return strings.Join(words, ",")
}
