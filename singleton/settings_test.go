package singleton_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// ParseSettings accepts every format that mongos accepts. Its error names the malformed field.
func TestParseSettings(t *testing.T) {
	t.Parallel()
	window := func(start, stop any) bson.E {
		return e("activeWindow", bson.D{e("start", start), e("stop", stop)})
	}
	for name, c := range map[string]struct {
		doc     bson.D
		stopped bool
		window  string
		field   string
	}{
		"nothing":           {doc: bson.D{}},
		"stopped":           {doc: bson.D{e("stopped", true)}, stopped: true},
		"not stopped":       {doc: bson.D{e("stopped", false), e("mode", "full")}},
		"mode off":          {doc: bson.D{e("mode", "off")}, stopped: true},
		"of MongoDB 3.4":    {doc: bson.D{e("mode", "autoSplitOnly")}, stopped: true},
		"window":            {doc: bson.D{window("6:00", "23:30")}, window: "06:00-23:30"},
		"window and others": {doc: bson.D{e("x", 64), window("23:00", "6:00")}, window: "23:00-06:00"},
		"stopped is a text": {doc: bson.D{e("stopped", "true")}, field: "stopped"},
		"unknown mode":      {doc: bson.D{e("mode", "sometimes")}, field: "mode"},
		"window is a text":  {doc: bson.D{e("activeWindow", "6:00-7:00")}, field: "activeWindow"},
		"no stop": {doc: bson.D{e("activeWindow", bson.D{e("start", "6:00")})},
			field: "activeWindow.stop"},
		"start is a number": {doc: bson.D{window(6, "7:00")}, field: "activeWindow.start"},
		"no such hour":      {doc: bson.D{window("6:00", "24:00")}, field: "activeWindow.stop"},
		"no window":         {doc: bson.D{window("6:00", "06:00")}, field: "activeWindow.stop"},
	} {
		raw := assert.Value(bson.Marshal(append(bson.D{e("_id", "a")}, c.doc...)))(t)
		s, err := singleton.ParseSettings(raw)
		var malformed *singleton.MalformedError
		if c.field != "" {
			if !errors.As(err, &malformed) || malformed.Field != c.field ||
				malformed.Collection != singleton.SettingsCollection {
				t.Errorf("%s: error is %v, want one of the field %s", name, err, c.field)
			}
			continue
		}
		got := ""
		if s.Window != nil {
			got = s.Window.String()
		}
		if err != nil || s.Stopped != c.stopped || got != c.window {
			t.Errorf("%s: %+v with window %q, %v", name, s, got, err)
		}
	}
	if s, err := singleton.ParseSettings(nil); err != nil || s != (singleton.Settings{}) {
		t.Errorf("no document: %+v, %v", s, err)
	}
	if _, err := singleton.ParseSettings(bson.Raw{5, 0}); err == nil {
		t.Error("a damaged document was accepted")
	}
}

// A window includes its start and excludes its stop, even over midnight.
func TestSettings_MayRun_AtTheEdges(t *testing.T) {
	t.Parallel()
	day := singleton.Settings{Window: &singleton.Window{Start: 6 * time.Hour, Stop: 23 * time.Hour}}
	night := singleton.Settings{Window: &singleton.Window{Start: 23 * time.Hour, Stop: 6 * time.Hour}}
	for at, inDay := range map[string]bool{
		"05:59": false, "06:00": true, "22:59": true, "23:00": false, "00:00": false,
	} {
		now := assert.Value(time.Parse("15:04", at))(t)
		if ok, why := day.MayRun(now); ok != inDay || ok != (why == "") {
			t.Errorf("day at %s: %v, %q", at, ok, why)
		}
		if ok, _ := night.MayRun(now); ok == inDay {
			t.Errorf("night at %s: %v", at, ok)
		}
	}
}
