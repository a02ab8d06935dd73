// Package mongocatalog implements [catalog.Catalog] with MongoDB and its official driver.
//
// # Every command is sent once
//
// Every write is one command, and is sent at most once. So an error describes the only try, and has
// one of two meanings: the write was not applied, or the outcome is unknown. A caller that wants to
// retry an acquisition sends transition.Confirm first.
//
// This package does not use the driver's retryable writes. They would try again until the context
// ends, and return the error of the last try, although an earlier try may have been applied. They
// would also make the server store an image of every document that a findAndModify changes.
//
// An overloaded server, from MongoDB 8.2 on, refuses commands and guarantees that it did not apply
// them. A client of [Dial] returns the error immediately. Any other client resends the command with
// pauses, by default up to two times (maxAdaptiveRetries). The command is still applied at most
// once, because the server refused every earlier copy.
//
// # Concerns
//
// Writes use w: majority. Reads use readConcern majority on the primary, unless a method documents
// another read concern. The connection string cannot change these settings.
//
// Transact starts a transaction. Renew and PutFirst for the same session join it if they get the
// context of the transaction. EnterTransaction joins the transaction that the caller started. Every
// other operation stays outside of a transaction, even if it gets the context of the transaction.
// On the client and on the server, every command ends after [Options].CommandTimeout or when the
// caller's context ends.
//
// # Limits
//
// The server must apply conditional updates atomically. [Supported] returns an error for a
// deployment that is known to violate this. configserver.Check tests a deployment.
package mongocatalog
