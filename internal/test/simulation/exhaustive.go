package simulation

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// variants returns the faults that Singles adds to a schedule. Some are shorter than the time limit
// of a command. Others outlast this limit, the trust of a holder without a ping, or the takeover
// time.
func variants() (all []Fault) {
	for k, lengths := range map[Kind][]time.Duration{
		DelayRequest: {4 * sec, 20 * sec, 70 * sec}, DelayReply: {4 * sec, 20 * sec},
		Refuse: {0}, Drop: {0}, LoseReply: {0}, ApplyLate: {1 * sec, 20 * sec, 70 * sec},
		Duplicate: {1 * sec, 20 * sec, 70 * sec}, StaleRead: {4 * sec, 20 * sec, 70 * sec},
		OldPrimary: {70 * sec}, CrashBefore: {0}, Crash: {0},
		PauseBefore: {4 * sec, 20 * sec, 50 * sec, 70 * sec},
		Pause:       {4 * sec, 20 * sec, 50 * sec, 70 * sec}, Suspend: {20 * sec, 70 * sec},
		Cut: {20 * sec, 70 * sec}, Deaf: {20 * sec, 70 * sec}, Hang: {20 * sec, 70 * sec},
		EndContexts: {0}, Close: {0, sec / 10, minute}, Sever: {sec / 1000}, Elect: {0, 10 * minute},
		StepWall: {-20 * minute, 50 * sec, 20 * minute}, StepServer: {-20 * minute, 50 * sec, 20 * minute},
	} {
		for _, d := range lengths {
			all = append(all, Fault{Kind: k, For: d})
		}
	}
	slices.SortFunc(all, func(a, b Fault) int { // the same order in every run
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.For, b.For))
	})
	return all
}

// Singles yields copies of a schedule, each with one more fault. There is a copy for each fault of
// variants at each command. The argument calls is Result.CallsOf of a run of the schedule.
func Singles(base Schedule, calls []int) iter.Seq[Schedule] {
	return func(yield func(Schedule) bool) {
		for _, f := range variants() {
			for p, n := range calls {
				for f.Call = 1; f.Call <= n; f.Call++ {
					f.Process = p
					s := base
					s.Faults = append(slices.Clone(base.Faults), f)
					s.Name = fmt.Sprintf("%s, %+v", base.Name, f)
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}
