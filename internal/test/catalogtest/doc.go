// Package catalogtest is the conformance suite of [catalog.Catalog]: named cases over real
// documents for the requirements of every store, and a state machine that applies the same random
// operations to two stores and compares them.
//
// Since the memory store and a server pass the same cases, a test on the memory store is valid for
// the server. The suite inserts foreign and malformed documents directly, and compares stored
// documents by field and type. It assumes no order of fields, which servers choose.
package catalogtest
