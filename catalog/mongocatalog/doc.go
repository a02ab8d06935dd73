// Package mongocatalog keeps the documents of the lock subsystem in a MongoDB, over the official
// driver. It implements [catalog.Catalog].
//
// # Every command is sent once
//
// Whether a write was applied must never be guessed, so every write is one command, sent at most
// once: not through the driver's retryable writes, which repeat until the context ends and then
// report the last failure, although an earlier try may have been applied. An error therefore
// speaks of the one and only try, and errors.go can say which of three it was: certainly not
// applied, unknown, applied. It also saves the server the image that it keeps of every document
// changed by a retryable findAndModify. To retry an acquisition, ask first: transition.Confirm.
//
// An overloaded server, from MongoDB 8.2 on, refuses commands and promises that it has not carried
// them out. The clients of [Dial] report that at once. The driver of a client of the application
// sends such a command up to two times more (maxAdaptiveRetries), with pauses. It is carried out at
// most once all the same, since every earlier copy was refused; and an error is that of the last
// copy, or a refusal where that copy was refused as well.
//
// # Concerns
//
// Writes are w: majority and reads readConcern majority on the primary whatever the connection
// string says, and a session or transaction in the caller's context is not joined: a lock that is
// taken inside a transaction is taken for good, at once. Every command is bounded by
// [Options].CommandTimeout and the caller's context, whichever ends first, on the client and on
// the server.
//
// # What it does not promise
//
// Conditional updates are as atomic as the server makes them. [Supported] refuses deployments
// that are known to be too weak; configserver.Check measures any.
package mongocatalog
