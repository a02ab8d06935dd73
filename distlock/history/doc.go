// Package history keeps what happened to the locks, in the collection lockhistory beside them. No
// lock depends on it. A [Log] is an Observer, made from the same Config as the Manager and handed
// to it:
//
//	cfg := distlock.Config{URI: uri, Database: "distlock"}
//	past, err := history.New(ctx, cfg, history.Options{})
//	...
//	cfg.Observer = past
//	manager, err := distlock.New(ctx, cfg)
//	...
//	defer past.Close(ctx) // after the Manager
//	defer manager.Close(ctx)
//
// Entries are written after a ping, in one batch; no acquisition and no release waits for that or
// sends more for it, and where nothing happened nothing is sent. A crash loses what happened since
// the last ping. What cannot be written is kept, up to 4,000 events, and tried again after the next
// ping; an entry "missed" says how many were dropped. If the user may not write the history, one
// warning is logged, and nothing is written. What an Inspector without a Manager breaks is written
// at once, by the call that broke it.
//
// [Log.Read] lists the entries of all processes.
package history
