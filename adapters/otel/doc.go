// Package otel records the events of locks as OpenTelemetry spans. A [Tracer] is an Observer of
// package distlock:
//
//	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Observer: otel.New(otel.Options{})})
//
// The spans are:
//
//   - "distlock acquire" lasts from the call to acquire a lock to its outcome. If the queue
//     grants the lock, the span has an event "granted". The parent of the span is the
//     span in the context of the call.
//   - "distlock takeover" has no duration. Its parent is "distlock acquire".
//   - "distlock release" includes all tries of the release. Its parent is the span in the
//     context of the acquisition.
//   - "distlock lost" and "distlock dropped" have no duration. Their parent is the span
//     in the context of the acquisition.
//   - "distlock evicted", "distlock condemned", "distlock broken",
//     "distlock released late" and "distlock process over" have no duration. The parent
//     of "distlock broken" is the span in the context of the call that breaks the lock.
//     The other four have no parent.
//
// Their attributes are:
//
//   - distlock.outcome: for example acquired, granted, taken over, refused, gave up,
//     released or lost
//   - distlock.cause: a cause listed in docs/metrics.md, with spaces in place of
//     underscores
//   - distlock.lock.name, distlock.lock.why, distlock.lock.mode (exclusive, shared or
//     permit), distlock.lock.fence (an integer), distlock.lock.session (the field ts)
//   - distlock.process: the id of this process
//   - distlock.previous_process: the id of the process that was evicted, condemned,
//     broken or taken over
//   - distlock.takeover.rule, distlock.takeover.evidence: the rule and the evidence by
//     which a process counts as dead
//   - distlock.waited: the duration of the span, in seconds of the monotonic clock
//   - distlock.held: the time for which the lock was held, in seconds of the monotonic
//     clock
//
// Pings have no spans. The tracing of the driver can record the commands. The package depends only
// on the API of OpenTelemetry, and the program chooses the exporter of the spans. Metrics are in
// package adapters/prometheus. [distlock.Observers] combines a Tracer with a Collector of that
// package.
package otel
