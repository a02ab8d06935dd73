// Package bsontest writes documents for tests in few words.
package bsontest

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// D is the document of these keys, each with its value behind it.
func D(pairs ...any) bson.D {
	d := make(bson.D, 0, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		d = append(d, bson.E{Key: pair[0].(string), Value: pair[1]})
	}
	return d
}
