package mutant

// ofMetrics lists the mistakes in the metrics of work under locks.
var ofMetrics = []Mistake{
	{Name: "a server is asked for metrics whenever somebody reads", File: "internal/metrics/asked.go",
		Old: "now-a.at >= AskedEvery", New: "now >= a.at",
		Package: "internal/metrics", Test: "TestAsked_ReadOften_AsksSeldom", Rule: "times a minute"},
	{Name: "every name has metrics of its own", File: "internal/metrics/asked.go",
		Old: "&& len(n.seen) == MostNames {", New: "&& len(n.seen) < 0 {",
		Package: "internal/metrics", Test: "TestNames_TooMany_AreTogether", Rule: "without"},
	{Name: "every process of a queue counts its rows", File: "claim/engine.go",
		Old: "if !e.rescues.Load() {", New: "if e.rescues.Load() && e.store == nil {",
		Package: "claim", Test: "TestStats_Outcomes_CountedOnce", Rule: "processes answer"},
}
