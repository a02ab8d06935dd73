// Package cluster is what a balancer does with the metadata of a sharded cluster, without doing it:
// it reads the documents of config.shards, config.collections and config.chunks, decides which
// chunk has to go where, and builds the filters, updates and records of a move. No I/O but the
// reading of a cluster file, no clock, no server.
//
// The policy is that of mongos 2.4 to 3.2, see Candidates. What it leaves out: zones, the sizes of
// data and of shards, the control chunk of a migration, and the copying of documents. A move here
// is a change of the metadata only. Fields that the policy does not look at are not kept.
//
// # How a move is guarded
//
// The filter of a move names the chunk, the shard it is on, and that no higher fence has been
// written into it. So a holder that lost its lock and does not know it yet can no longer undo
// what its successor did with that chunk:
//
//	filter: {_id: <id>, shard: <from>, $or: [{fence: {$exists: false}}, {fence: {$lte: <mine>}}]}
//	update: {$set: {shard: <to>, fence: <mine>, lastmod: <next>}, $currentDate: {movedAt: ...}}
//
// A chunk that no later holder has touched carries no higher fence, and there the filter is no
// protection. That is what the holder's deadline is for, and package referee finds it if it
// happens: the server itself stamps every move, and a move that is stamped after a round with a
// higher fence began is a violation.
package cluster
