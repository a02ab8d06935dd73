// Package bsontest constructs documents for tests.
package bsontest

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// D returns a document with the given fields. In the arguments, each key is followed by its value.
func D(pairs ...any) bson.D {
	d := make(bson.D, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		d = append(d, bson.E{Key: pair[0].(string), Value: pair[1]})
	}
	return d
}
