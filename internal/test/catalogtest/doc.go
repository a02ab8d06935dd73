// Package catalogtest is the conformance suite of [catalog.Catalog]: what every store has to do,
// as named cases over real documents, and a state machine that drives two stores with the same
// random operations and compares them.
//
// A case that passes here on the memory store and on a server is what lets a proof over the memory
// one count for the other. The suite plants foreign and malformed documents around the store and
// reads back what it wrote, field by field and type by type. It assumes nothing about the order
// of fields, which servers choose.
package catalogtest
