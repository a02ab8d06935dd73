package main

import (
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func set(t *testing.T, name, generation string, settings ...string) Play {
	t.Helper()
	c := assert.Value(FindCases(name))(t)[0]
	g := assert.Value(FindGeneration(generation))(t)
	c = assert.Value(c.With(settings...))(t)
	plays := assert.Value(Run(t.Context(), []Case{c}, []Generation{g}))(t)
	return plays[0][0]
}

// The value of a knob replaces the value of the case and changes the outcome.
func TestKnobs_TurnOutcomes(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ play, settings, want string }{
		{"pause 1.8", "pause=14m", "-"},
		{"pause 1.8", "A.pause=0s A.pause=20m@5m", "two"},
		{"clock-ahead 1.8", "B.clock=+14m", "-"},
		{"clock-ahead 1.8", "B.clock=0s A.step=-20m@10m", "two"}, // H7
		{"clock-ahead 1.8", "B.clock=0s A.step=-5m@10m", "-"},
		{"cut-off 2.6", "cut=10m", "-"},
		{"cut-off 2.6", "cut=10m takeover=5m", "two"},
		{"cut-off 3.2", "cut=10m takeover=5m", "two"},
		{"cut-off 1.8", "cut=10m takeover=5m", "two"},
		{"cut-off ours", "cut=10m takeover=5m", "-"},
		{"two-force 1.8", "C.late=take-over:0s", "-"},
		{"release-repeated 1.8", "A.lost=ping", "-"},
		{"config-clocks-apart 2.6", "mirror.clock=20s", "-"},
		{"server-clock-steps 3.2", "server.clock=10m", "-"},
		{"server-clock-steps 3.2", "server.clock=1m@10m10s election=19m@10m10s", "-"},
		{"outage 1.8", "outage=5m", "-"},
		{"outage 2.6", "outage=14m55.7s@3m5s", "two"}, // G2-2
		// Even with only one config server, 2.0 reads that server's clock (r2.0.9:390).
		{"dead-holder 2.0", "B.late=clock:20m", "late"},
	} {
		name, generation, _ := strings.Cut(one.play, " ")
		if effort.Race && generation != "1.8" {
			continue
		}
		p := set(t, name, generation, strings.Fields(one.settings)...)
		if got := p.Outcome.Shape(); got != one.want {
			t.Errorf("%s, %s: %s, want %s: %v", one.play, one.settings, got, one.want, p.Outcome.Parts())
		}
	}
	if o := set(t, "dead-holder", "1.8", "A.dies=40m").Outcome; len(o.Losses) > 0 {
		t.Errorf("A lives until 12:40, and has lost the lock: %v", o.Losses)
	}
	if o := set(t, "dead-holder", "3.2", "A.late=grab:10m").Outcome; o.Idle > time.Minute {
		t.Errorf("A has not tried again after the time limit (r3.2.22 shard_registry.cpp:153): %v", o)
	}
	o := set(t, "dead-holder", "1.8", "latency=2s", "B.tries=10m").Outcome
	if o.Idle < 17*time.Minute {
		t.Errorf("B tries every ten minutes, and has waited only for %v", o.Idle)
	}
}

// The error of a wrong setting names the problem and the valid settings.
func TestWith_WrongSettings_SayWhatThereIs(t *testing.T) {
	t.Parallel()
	c := assert.Value(FindCases("two-force"))(t)[0]
	for setting, wants := range map[string]string{
		"A.paws=1m":          `"A.paws"|A.pause|C.late|takeover|latency`,
		"D.pause=1m":         `"D.pause"|two-force`,
		"pause=1m":           `no knob "pause"`,
		"A.pause=14":         `A.pause|"14"|LENGTH`,
		"A.pause":            `A.pause|not a length`,
		"A.pause=-1m":        "not between 0s and 2h",
		"A.pause=1m@9h":      "TIME outside",
		"B.clock=1m@5m":      "must not have a TIME",
		"C.late=teke-over":   "does not name a command|take-over",
		"C.late=grab#0:1m":   "not at least 1",
		"takeover=1s":        "not between 2m and 2h",
		"mirror.clock=1m":    `no knob "mirror.clock"`,
		"C.lost=grab:5m":     "must not have a LENGTH|COMMAND[#N]",
		"latency=\x1b[31m":   `\x1b`,
		"A.dies=\x1b[31m@5m": `\x1b`,
	} {
		_, err := c.With(setting)
		for want := range strings.SplitSeq(wants, "|") {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q: %v, want %q", setting, err, want)
			}
		}
	}
}
