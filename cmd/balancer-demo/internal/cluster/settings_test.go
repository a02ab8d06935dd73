package cluster_test

import (
	"errors"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/cluster"
)

func TestSettings_MayRun(t *testing.T) {
	t.Parallel()
	const night = `, "activeWindow": {"start": "23:00", "stop": "6:00"}`
	const day = `, "activeWindow": {"start": "08:30", "stop": "17:00"}`
	tests := map[string]struct {
		fields, now string
		want        bool
	}{
		"nothing set":                     {"", "12:00:00", true},
		"stopped":                         {`, "stopped": true`, "12:00:00", false},
		"stopped as a number":             {`, "stopped": 1`, "12:00:00", false},
		"not stopped":                     {`, "stopped": false`, "12:00:00", true},
		"mode off":                        {`, "mode": "off"`, "12:00:00", false},
		"mode full":                       {`, "mode": "full"`, "12:00:00", true},
		"stopped within the window":       {`, "stopped": true` + day, "12:00:00", false},
		"by day, before":                  {day, "08:29:59", false},
		"by day, at the start":            {day, "08:30:00", true},
		"by day, at the last second":      {day, "16:59:59", true},
		"by day, at the stop":             {day, "17:00:00", false},
		"over midnight, before":           {night, "22:59:59", false},
		"over midnight, at the start":     {night, "23:00:00", true},
		"over midnight, at midnight":      {night, "00:00:00", true},
		"over midnight, the last second":  {night, "05:59:59", true},
		"over midnight, at the stop":      {night, "06:00:00", false},
		"over midnight, at noon":          {night, "12:00:00", false},
		"no window is no window":          {`, "activeWindow": null`, "12:00:00", true},
		"fields of others do not disturb": {`, "_secondaryThrottle": true`, "12:00:00", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := cluster.ParseSettings(raw(t, `{"_id": "balancer"`+test.fields+`}`))
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse(time.DateTime, "2016-04-12 "+test.now)
			if err != nil {
				t.Fatal(err)
			}
			ok, reason := s.MayRun(now)
			if ok != test.want || ok != (reason == "") {
				t.Errorf("want %t, got %t with reason %q", test.want, ok, reason)
			}
		})
	}
}

func TestParseSettings_NoDocument_MayRun(t *testing.T) {
	t.Parallel()
	s, err := cluster.ParseSettings(nil)
	if err != nil {
		t.Fatal(err)
	}
	if ok, reason := s.MayRun(time.Time{}); !ok {
		t.Errorf("may not run: %s", reason)
	}
}

func TestSettings_MayRun_OutsideOfWindow_SaysBothTimes(t *testing.T) {
	t.Parallel()
	s := cluster.Settings{Window: &cluster.Window{Start: 23 * time.Hour, Stop: 390 * time.Minute}}
	_, reason := s.MayRun(time.Date(2016, 4, 12, 12, 5, 0, 0, time.UTC))
	if want := "12:05 is outside of the active window 23:00-06:30"; reason != want {
		t.Errorf("want %q, got %q", want, reason)
	}
}

func TestParseSettings_BadValues_NameTheField(t *testing.T) {
	t.Parallel()
	for fields, field := range map[string]string{
		`"stopped": "yes"`:                                     `"stopped"`,
		`"mode": "fast"`:                                       `"mode"`,
		`"activeWindow": "night"`:                              `"activeWindow"`,
		`"activeWindow": {"stop": "6:00"}`:                     `"activeWindow.start"`,
		`"activeWindow": {"start": "6:00"}`:                    `"activeWindow.stop"`,
		`"activeWindow": {"start": 6, "stop": "7:00"}`:         `"activeWindow.start"`,
		`"activeWindow": {"start": "24:00", "stop": "6:00"}`:   `"activeWindow.start"`,
		`"activeWindow": {"start": "1:60", "stop": "6:00"}`:    `"activeWindow.start"`,
		`"activeWindow": {"start": "1:00", "stop": "6"}`:       `"activeWindow.stop"`,
		`"activeWindow": {"start": "1:00", "stop": "+6:00"}`:   `"activeWindow.stop"`,
		`"activeWindow": {"start": "1:00", "stop": "6:00pm"}`:  `"activeWindow.stop"`,
		`"activeWindow": {"start": "1:00", "stop": "-6:00"}`:   `"activeWindow.stop"`,
		`"activeWindow": {"start": "06:00", "stop": "6:00"}`:   `"activeWindow.stop"`,
		`"activeWindow": {"start": "\u001b", "stop": "06:00"}`: `"activeWindow.start"`,
	} {
		_, err := cluster.ParseSettings(raw(t, `{"_id": "balancer", `+fields+`}`))
		wantError(t, err, "settings", `"balancer"`, field)
		if !errors.Is(err, catalog.ErrMalformed) {
			t.Errorf("%s: %v is no ErrMalformed", fields, err)
		}
	}
}
