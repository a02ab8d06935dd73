// Package otel records OpenTelemetry spans of the events of locks. A [Tracer] is an Observer of
// package distlock:
//
//	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Observer: otel.New(otel.Options{})})
//
// A span "distlock acquire" lasts from the call to its outcome, wait included, and is a child of
// the span in the context of that call; so is the "distlock release" of the guard, whenever it
// happens. An event in the span marks a lock that was handed over in the queue; a takeover is a
// child span "distlock takeover", with the rule and the evidence. A loss, an eviction, a
// condemnation and a retired process id are spans without duration, "distlock lost" and so on,
// because the span to which they belong may be over. Pings make no spans. The driver can trace the
// commands.
//
// docs/metrics.md lists the spans and their attributes. The package depends on the API of
// OpenTelemetry only: the program chooses the exporter of the spans. It has no metrics: those are
// in adapters/prometheus, and [distlock.Observers] joins both.
package otel
