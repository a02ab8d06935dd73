package claim

import "testing"

// What a process says of its queue by the reason of its slot is read as it was said.
func TestConfigOf_Reasons(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {Due: "at"}, {Key: "of.key"}, {Due: `a "b", in chains by "c"`, Key: "\n, due by "}} {
		if got := ConfigOf(c.reason()); got.Due != c.Due || got.Key != c.Key {
			t.Errorf("%q says %q, %q", c.reason(), got.Due, got.Key)
		}
	}
	if got := ConfigOf(`reports, due by "at"`); got.Due != "" {
		t.Errorf("another reason says %q", got.Due)
	}
}
