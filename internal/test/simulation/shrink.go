package simulation

import "slices"

// Shrink returns a schedule with as few faults as possible that still fails. It removes ever smaller
// parts of the list of faults. The function fails plays a schedule and reports whether it fails.
func Shrink(s Schedule, fails func(Schedule) bool) Schedule {
	for size := len(s.Faults); size > 0; size /= 2 {
		for from := 0; from < len(s.Faults); {
			t := s
			t.Faults = slices.Delete(slices.Clone(s.Faults), from, min(from+size, len(s.Faults)))
			if fails(t) {
				s = t
			} else {
				from += size
			}
		}
	}
	return s
}
