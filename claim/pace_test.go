package claim

import (
	"errors"
	"testing"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// A failure doubles the pause, up to a minute. Concurrent failures double the pause once. A success
// or a refusal halves the pause.
func TestPace_Failures_DoubleThePause(t *testing.T) {
	t.Parallel()
	p := pace{clock: clock.System()}
	fail := func(at time.Duration) { p.note(at, errors.New("timeout")) }
	fail(p.clock.Now().Mono)
	fail(0)
	assert.Equal(t, p.now(), leastPause, "the pause is %v, want %v")
	for range 20 {
		fail(p.clock.Now().Mono)
	}
	assert.Equal(t, p.now(), time.Minute, "the pause is %v, want %v")
	p.note(0, rows.ErrRefused)
	assert.Equal(t, p.now(), 30*time.Second, "the pause is %v, want %v")
	for range 10 {
		p.note(0, nil)
	}
	assert.Equal(t, p.now(), 0, "the pause is %v, want %v")
}

// With the default configuration, ten attempts take more than a day. No pause exceeds its limit.
func TestBackoff_Defaults_OutlastAnOutage(t *testing.T) {
	t.Parallel()
	e := &engine{cfg: Config{}.withDefaults(), clock: clock.System()}
	sum := time.Duration(0)
	for n := range int64(9) {
		pause := e.backoff(n + 1)
		if sum += pause; pause > 20*time.Hour {
			t.Errorf("pause %d is %v", n, pause)
		}
	}
	if sum < 24*time.Hour {
		t.Errorf("ten attempts take %v, want more than a day", sum)
	}
}
