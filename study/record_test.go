package main

import "testing"

// A frozen process has no marks until it runs again.
func TestMarks_OfAFrozenProcess_None(t *testing.T) {
	t.Parallel()
	frozen := 0
	outcomes(func(_ Case, _ Generation, p Play) {
		for _, b := range p.Bars {
			if b.Kind != "paused" {
				continue
			}
			frozen++
			for _, m := range p.Marks {
				if m.Process == b.Process && m.Kind != "late" && b.From < m.At && m.At < b.Until {
					t.Errorf("%s by %s: %s at %s: %s", p.Case, p.Generation, p.Processes[m.Process],
						Time(m.At), m.Text)
				}
			}
		}
	})
	if frozen == 0 {
		t.Error("no process was frozen")
	}
}
