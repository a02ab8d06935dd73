// Package otel records OpenTelemetry spans of the events of locks. A [Tracer] is an Observer of
// package distlock:
//
//	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Observer: otel.New(otel.Options{})})
//
// The spans are:
//
//   - "distlock acquire" lasts from the call to its outcome. It has an event "granted" if the lock
//     came from the queue. Its parent is the span in the context of the call.
//   - "distlock takeover" has no duration. Its parent is "distlock acquire".
//   - "distlock release" includes all tries. Its parent is the span in the context of the
//     acquisition.
//   - "distlock lost" and "distlock dropped" have no duration. Their parent is the span in the
//     context of the acquisition.
//   - "distlock evicted", "distlock condemned", "distlock broken", "distlock released late" and
//     "distlock process over" have no duration. Only a break has a parent, the span of its caller.
//
// Their attributes are:
//
//   - distlock.outcome: acquired, granted, taken over, refused, gave up, released, lost, ...
//   - distlock.cause: a cause of docs/metrics.md, with spaces in place of underscores
//   - distlock.lock.name, distlock.lock.why, distlock.lock.mode (exclusive, shared or permit),
//     distlock.lock.fence (an integer), distlock.lock.session (the field ts)
//   - distlock.process, distlock.previous_process: the process id. The second is the id of the
//     evicted, condemned or broken process.
//   - distlock.takeover.rule, distlock.takeover.evidence
//   - distlock.waited, distlock.held: the length of the span and of the hold, in seconds of the
//     monotonic clock
//
// Pings make no spans. The driver can trace the commands. The package depends only on the API of
// OpenTelemetry; the program chooses the exporter of the spans. Metrics are in package
// adapters/prometheus, and [distlock.Observers] combines the two.
package otel
