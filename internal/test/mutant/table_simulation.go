package mutant

import "slices"

const (
	Walks   = "TestWalk_FindsNothing"
	singles = "TestSingles_EveryCommand_FindsNothing"
)

// bySimulation lists the mistakes that the simulation must also notice, in random walks or with
// single faults. The rule is the oracle that reports the mistake.
var bySimulation = []struct{ test, name, rule string }{
	{Walks, "release by _id alone", "I3:"},
	{Walks, "trusted for takeover + ping", "I4:"},
	{Walks, "upserting ping", "I3:"},
	{Walks, "unknown taken for not held", "I6:"},
	{Walks, "unknown taken for held", "I2:"},
	{Walks, "expiry by timer only", "I4:"},
	{Walks, "release forgets the line", "I3:"},
	{Walks, "newcomer overtakes the line", "order:"},
	{Walks, "a waiter that gave up stays in line", "I8:"},
	{Walks, "waiter evicted by age alone", "rule:"},
	{Walks, "a transaction waits for the one around it", "truth:"},
	{singles, "guard revived by a late reply", "truth:"},
	{singles, "age of the ping by the contender's clock", "rule:"},
	{Walks, "no reap", "I6:"},
	{singles, "reaper asks its table before the read", "I1:"},
	{singles, "attempt noted after sending", "I1:"},
	{Walks, "watch goes on after an election", "rule:"},
	{singles, "a late ping counts", "I3:"},
	{singles, "Close gives nothing back when its context has ended", "I8:"},
}

func ofSimulation() []Mistake {
	var found []Mistake
	for _, by := range bySimulation {
		i := slices.IndexFunc(all, func(m Mistake) bool { return m.Name == by.name })
		m := all[i]
		m.Name += ", in the simulation"
		m.Package, m.Test, m.Rule = "internal/test/simulation", by.test, by.rule
		found = append(found, m)
	}
	return found
}
