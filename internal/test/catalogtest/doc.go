// Package catalogtest tests that a store conforms to [catalog.Catalog]. Some cases test single
// requirements with real documents. The others are lives, which are named or random sequences of
// transitions. After every step of a life the store must agree with package transition.
//
// The memory store and a server pass the same cases. So a test with the memory store is also valid
// for a server. The cases insert foreign and malformed documents directly. They compare documents
// by field and type, but not by the order of fields, because that order is the server's choice.
package catalogtest
