// Package cluster computes the work of a balancer on the metadata of a sharded cluster. It parses
// the documents of config.shards, config.collections and config.chunks, decides which chunk to move
// to which shard, and builds the filters, updates and records of a move. It uses no clock and no
// server, and its only I/O is to read a cluster file.
//
// The policy is the policy of mongos 2.4 to 3.2, see Candidates. It omits zones, the sizes of data
// and of shards, the control chunk of a migration, and the copying of documents. A move here only
// changes the metadata. Fields that the policy does not use are dropped.
//
// # How a move is guarded
//
// The filter of a move names the chunk and its present shard, and requires that the chunk has no
// higher fence. So a holder that lost its lock cannot undo its successor's moves of that chunk:
//
//	filter: {_id: <id>, shard: <from>, $or: [{fence: {$exists: false}}, {fence: {$lte: <mine>}}]}
//	update: {$set: {shard: <to>, fence: <mine>, lastmod: <next>}, $currentDate: {movedAt: ...}}
//
// The filter does not protect a chunk that no later holder has moved, because its fence is not
// higher. The holder's deadline protects it. Package referee detects a failure of the deadline by
// the server's stamp of each move: a stamp after the start of a round with a higher fence is a
// violation.
package cluster
