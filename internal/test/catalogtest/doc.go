// Package catalogtest is the conformance suite of [catalog.Catalog]. It has named cases over real
// documents for the requirements of every store. Lives, which are named or random sequences of
// transitions, compare a store with package transition after every step.
//
// The memory store and a server pass the same cases, so a test on the memory store is valid for the
// server. The suite inserts foreign and malformed documents directly. It compares stored documents
// by field and type, in any order of fields, because servers choose the order.
package catalogtest
