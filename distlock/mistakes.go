package distlock

import (
	"mongodlm/internal/mutant"
	"mongodlm/takeover"
)

// mistaken fills evidence wrongly, as far as a test has switched mistakes on. The rule itself is
// pure and has no switch; in production there are no mistakes and nothing happens here.
func mistaken(mistakes mutant.Set, e *takeover.Evidence, p *takeover.Policy) {
	if mistakes == 0 {
		return
	}
	if mistakes.Has(mutant.StopwatchBeforeFirstLook) { // mutant 4
		e.Received = e.Sent
	}
	if mistakes.Has(mutant.StopwatchAfterLastLook) { // mutant 5
		e.Sent = e.Received
	}
	if mistakes.Has(mutant.OwnTakeoverOnly) { // mutant 8
		e.Recorded, e.PingTakeover = 0, 0
	}
	if mistakes.Has(mutant.AgeByOwnClock) { // mutant 9: as mongos 1.8, at the first look
		e.Server, e.Local, p.Mode = e.Wall, e.Ping, takeover.TakeAtOnce
	}
	if mistakes.Has(mutant.ElectionIgnored) { // mutant 19
		e.Primary = ""
	}
	if mistakes.Has(mutant.SessionChangeIgnored) { // mutant 20
		e.TS = [12]byte{}
	}
	if mistakes.Has(mutant.ForeignIsOurs) && e.Recorded == 0 { // mutant 33
		e.Recorded = p.Takeover
	}
}
