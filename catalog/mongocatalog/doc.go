// Package mongocatalog keeps the documents of the lock subsystem in a MongoDB, over the official
// driver. It implements [catalog.Catalog].
//
// # Every command is sent once
//
// The outcome of a write is never guessed, so every write is one command, sent at most once. It
// does not use the driver's retryable writes, which repeat until the context ends and then report
// the last failure, although an earlier try may have been applied. An error therefore belongs to
// the only try, and errors.go classifies it: not applied, or unknown. This also spares the server
// the image that it keeps of every document changed by a retryable findAndModify. To retry an
// acquisition, send transition.Confirm first.
//
// An overloaded server, from MongoDB 8.2 on, refuses commands and guarantees that it has not
// carried them out. The clients of [Dial] report that immediately. The driver of an application's
// client sends such a command up to two more times (maxAdaptiveRetries), with pauses. The command
// is still carried out at most once, since every earlier copy was refused; and an error is that of
// the last copy, or a refusal where that copy was refused as well.
//
// # Concerns
//
// Writes are w: majority and reads readConcern majority on the primary, regardless of the
// connection string. Only Transact, EnterTransaction and transitions under a lock join a session or
// transaction of the context: any other operation takes effect immediately, also when called inside
// a transaction. Every command is bounded by [Options].CommandTimeout and the caller's context,
// whichever ends first, on the client and on the server.
//
// # Limits
//
// Conditional updates are as atomic as the server makes them. [Supported] refuses deployments
// that are known to be too weak; configserver.Check measures any deployment.
package mongocatalog
