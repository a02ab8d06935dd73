// Package mongocatalog implements [catalog.Catalog] with MongoDB and its official driver.
//
// # Every command is sent once
//
// Every write is one command, and is sent at most once. So an error describes the only try, and
// errors.go can classify it: the write was not applied, or the outcome is unknown. The driver's
// retryable writes are off. They would try again until the context ends, and return the error of
// the last try, although an earlier try may have been applied. They would also make the server
// store an image of every document that a retryable findAndModify changed. A caller that wants to
// retry an acquisition sends transition.Confirm first.
//
// An overloaded server, from MongoDB 8.2 on, refuses commands and guarantees that it did not apply
// them. A client of [Dial] returns that error at once. A client that the application made sends the
// command up to two more times (maxAdaptiveRetries), with pauses. The command is still applied at
// most once, because the server refused every earlier copy.
//
// # Concerns
//
// Writes use w: majority. Reads use readConcern majority on the primary, unless a method documents
// another one. The connection string cannot change that. Only Transact, EnterTransaction and
// transitions under a lock take part in a transaction of the context. Every other operation takes
// effect at once, even with the context of a transaction. On the client and on the server, every
// command ends after [Options].CommandTimeout or when the caller's context ends.
//
// # Limits
//
// The server must apply conditional updates atomically. [Supported] refuses deployments that are
// known not to. configserver.Check tests a deployment.
package mongocatalog
