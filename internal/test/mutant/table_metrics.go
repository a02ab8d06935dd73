package mutant

// ofMetrics lists the mistakes in the metrics of work under locks.
var ofMetrics = []Mistake{
	{Name: "each reading of metrics asks the server", File: "internal/metrics/asked.go",
		Old: "now-a.at >= AskedEvery", New: "now >= a.at",
		Package: "internal/metrics", Test: "TestAsked_ReadOften_AsksSeldom", Rule: "times a minute"},
	{Name: "the number of names with metrics is unlimited", File: "internal/metrics/asked.go",
		Old: "&& len(n.seen) == MostNames {", New: "&& len(n.seen) < 0 {",
		Package: "internal/metrics", Test: "TestNames_TooMany_AreTogether", Rule: "without"},
	{Name: "each process of a queue counts the rows", File: "claim/engine.go",
		Old: "if !e.rescues.Load() {", New: "if e.rescues.Load() && e.store == nil {",
		Package: "claim", Test: "TestStats_Outcomes_CountedOnce", Rule: "the second process reports"},
}
