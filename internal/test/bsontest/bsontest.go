// Package bsontest constructs documents for tests.
package bsontest

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// D returns a document. The arguments are alternately keys and values.
func D(pairs ...any) bson.D {
	d := make(bson.D, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		d = append(d, bson.E{Key: pair[0].(string), Value: pair[1]})
	}
	return d
}
