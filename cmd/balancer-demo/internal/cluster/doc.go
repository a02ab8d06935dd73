// Package cluster computes the work of a balancer on the metadata of a sharded cluster: it parses
// the documents of config.shards, config.collections and config.chunks, decides which chunk to move
// to which shard, and builds the filters, updates and records of a move. No I/O except the reading
// of a cluster file, no clock, no server.
//
// The policy is that of mongos 2.4 to 3.2, see Candidates. It omits zones, the sizes of data and of
// shards, the control chunk of a migration, and the copying of documents. A move here is a change
// of the metadata only. Fields that the policy does not use are dropped.
//
// # How a move is guarded
//
// The filter of a move names the chunk, the shard it is on, and requires that no higher fence has
// been written into it. So a holder that lost its lock and does not know it yet can no longer undo
// its successor's moves of that chunk:
//
//	filter: {_id: <id>, shard: <from>, $or: [{fence: {$exists: false}}, {fence: {$lte: <mine>}}]}
//	update: {$set: {shard: <to>, fence: <mine>, lastmod: <next>}, $currentDate: {movedAt: ...}}
//
// A chunk that no later holder has touched carries no higher fence, and the filter does not protect
// it. The holder's deadline does, and package referee detects a failure of that: the server itself
// stamps every move, and a move that is stamped after the start of a round with a higher fence is a
// violation.
package cluster
