package simulation

import "slices"

// Shrink returns a schedule with as few faults as possible that still fails. It removes halves,
// quarters and single faults of the list. The function fails plays a schedule and reports whether
// it fails. The result has no Trace.
func Shrink(s Schedule, fails func(Schedule) bool) Schedule {
	s.Trace = false
	for parts := 2; len(s.Faults) > 0; {
		size := (len(s.Faults) + parts - 1) / parts
		smaller := false
		for from := 0; from < len(s.Faults); from += size {
			t := s
			t.Faults = slices.Delete(slices.Clone(s.Faults), from, min(from+size, len(s.Faults)))
			if fails(t) {
				s, smaller = t, true
				break
			}
		}
		switch {
		case smaller:
			parts = max(2, parts-1)
		case size == 1:
			return s
		default:
			parts = min(2*parts, len(s.Faults))
		}
	}
	return s
}
