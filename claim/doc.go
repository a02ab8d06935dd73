// Package claim gives the rows of a collection to workers, each row to one of them at a time.
package claim
