// Package mongocatalog implements [catalog.Catalog] with MongoDB and its official driver.
//
// # Every command is sent once
//
// Every write is one command that is sent at most once. So an error belongs to the only try, and
// errors.go classifies it: not applied, or unknown. The driver's retryable writes are not used:
// they repeat until the context ends and then report the last failure, although an earlier try may
// have been applied. They also make the server store an image of every document that a retryable
// findAndModify changed. To retry an acquisition, send transition.Confirm first.
//
// From MongoDB 8.2 on an overloaded server refuses commands and guarantees that it did not apply
// them. The clients of [Dial] report that immediately. An application's client sends such a command
// up to two more times (maxAdaptiveRetries), with pauses. The command is still applied at most
// once, since the server refused every earlier copy. The error is the last copy's.
//
// # Concerns
//
// Writes are w: majority and reads readConcern majority on the primary, regardless of the
// connection string. Only Transact, EnterTransaction and transitions under a lock join a session or
// transaction of the context. Every other operation takes effect immediately, even inside a
// transaction. Every command ends after [Options].CommandTimeout, or when the caller's context
// ends, on the client and on the server.
//
// # Limits
//
// The server must make conditional updates atomic. [Supported] refuses deployments that are known
// to be too weak. configserver.Check measures a deployment.
package mongocatalog
