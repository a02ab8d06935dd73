// Package otel makes OpenTelemetry spans of what happens to locks. A [Tracer] is an Observer of
// package distlock:
//
//	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Observer: otel.New(otel.Options{})})
//
// A span "distlock acquire" lasts from the call to its outcome, and is a child of the span in the
// context of that call; so is the "distlock release" of the guard, whenever that is. The wait is
// the span. An event in it says that the lock was handed over in line; a takeover is a "distlock
// takeover" in it, with the rule and the evidence. A loss, an eviction, a condemnation and a
// process id that was given up are spans of an instant, "distlock lost" and so on, since there may
// be no span to which they could be added any more. Pings make no spans. The commands that are sent
// meanwhile are the driver's to trace.
//
// docs/metrics.md lists the spans and their attributes. The package depends on the API of
// OpenTelemetry only: the program chooses the exporter of the spans. It has no metrics: those are
// in adapters/prometheus, and [distlock.Observers] joins both.
package otel
