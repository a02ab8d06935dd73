// Package catalogtest is the conformance suite of [catalog.Catalog].
//
// Some cases test single requirements on hand-written documents. The other cases are lives. A life
// is a named or random sequence of transitions. After every step of a life, the store must agree
// with package transition.
//
// The memory store and a server pass the same cases, so a test on the memory store is also valid
// for a server. The cases insert foreign and malformed documents directly. They compare the fields
// of documents and the types of the fields. They ignore the order of the fields, because each
// server chooses its own order.
package catalogtest
