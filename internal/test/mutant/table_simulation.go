package mutant

import "slices"

const (
	Walks   = "TestWalk_FindsNothing"
	singles = "TestSingles_EveryCommand_FindsNothing"
)

// bySimulation lists the mistakes that the simulation must also notice. The field test names a test
// of random walks or of single faults. The field rule names the rule that the mistake violates.
var bySimulation = []struct{ test, name, rule string }{
	{Walks, "a release matches any session of the lock", "I3:"},
	{Walks, "trusted for takeover + ping", "I4:"},
	{Walks, "a ping changes a condemned document", "I3:"},
	{Walks, "an unknown outcome counts as not acquired", "I6:"},
	{Walks, "an unknown outcome counts as acquired", "I2:"},
	{Walks, "a term expires only by its timer", "I4:"},
	{Walks, "a release deletes the queue", "I3:"},
	{Walks, "a newcomer enters at the front of the queue", "order:"},
	{Walks, "a waiter that gave up stays in the queue", "I8:"},
	{Walks, "a waiter is evicted after a long wait", "rule:"},
	{Walks, "a nested transaction waits for the outer one", "truth:"},
	{singles, "a late reply makes a lost guard trusted again", "truth:"},
	{singles, "the contender's clock gives the age of a ping", "rule:"},
	{Walks, "no reap", "I6:"},
	{singles, "the reaper releases the session of an open attempt", "I1:"},
	{singles, "an attempt is not recorded before it is sent", "I1:"},
	{Walks, "a watch continues after an election", "rule:"},
	{singles, "a late ping overwrites a newer one", "I3:"},
	{singles, "Close releases nothing after its context has ended", "I8:"},
}

// firstWalk contains the seed of the first walk for a mistake that the walks before do not notice.
var firstWalk = map[string]int{"an unknown outcome counts as not acquired": 30}

func ofSimulation() []Mistake {
	var found []Mistake
	for _, by := range bySimulation {
		i := slices.IndexFunc(all, func(m Mistake) bool { return m.Name == by.name })
		m := all[i]
		m.Name += ", in the simulation"
		m.Package, m.Test, m.Rule = "internal/test/simulation", by.test, by.rule
		m.From = firstWalk[by.name]
		found = append(found, m)
	}
	return found
}
