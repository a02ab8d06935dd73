package singleton

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Settings are the settings of one loop or schedule, parsed from its document in distlock_settings.
// The zero value permits rounds at any time. If there is no document, the settings are the zero
// value.
type Settings struct {
	// Stopped prevents new rounds. A running round continues.
	Stopped bool
	// Window is the time of day in which rounds may begin. If it is nil, they may begin at any time.
	Window *Window
}

// A Window is a part of each day, from Start to just before Stop. If Stop is less than Start, the
// Window includes midnight.
type Window struct {
	Start, Stop time.Duration // since midnight; not equal
}

// ParseSettings parses a document of distlock_settings. The format is that of the balancer's
// settings in mongos:
//
//	{_id: <name>, stopped: true, activeWindow: {start: "23:00", stop: "6:00"}}
//
// ParseSettings also reads the field "mode" of MongoDB 3.4. The modes "off" and "autoSplitOnly"
// stop rounds, as "stopped" does. The mode "full" permits rounds. ParseSettings ignores other
// fields. If raw is nil, it returns the zero Settings. Error: a *MalformedError that names the
// field.
func ParseSettings(raw bson.Raw) (Settings, error) {
	if raw == nil {
		return Settings{}, nil
	}
	f := open(SettingsCollection, raw)
	s := Settings{Stopped: f.flag("stopped")}
	switch mode := f.text("mode"); mode {
	case "", "full":
	case "off", "autoSplitOnly":
		s.Stopped = true
	default:
		f.fail("mode", "is %q; it must be full or off", catalog.Printable(mode, 100))
	}
	const of = "a document with start and stop"
	if in := value(f, "activeWindow", of, bson.RawValue.DocumentOK); in != nil {
		s.Window = &Window{Start: f.timeOfDay("start"), Stop: f.timeOfDay("stop")}
		if s.Window.Start == s.Window.Stop {
			f.fail("activeWindow.stop", "is the same as start; remove activeWindow to run all day")
		}
	}
	if *f.err != nil {
		return Settings{}, *f.err
	}
	return s, nil
}

// timeOfDay parses a field of the active window, a time such as "6:00" or "06:00".
func (f fields) timeOfDay(name string) time.Duration {
	v, field := f.raw.Lookup("activeWindow", name), "activeWindow."+name
	text, ok := v.StringValueOK()
	if !ok {
		f.fail(field, `must be a string like "23:00", not %s`, kindOf(v))
		return 0
	}
	at, err := time.Parse("15:04", text)
	if err != nil {
		f.fail(field, `is %q; it must be an hour and a minute like "23:00"`, catalog.Printable(text, 100))
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
}

// MayRun reports whether a round may begin at the given time. If no round may begin, the second
// result is the reason. The window is in the time zone of the given time.
func (s Settings) MayRun(now time.Time) (ok bool, why string) {
	switch {
	case s.Stopped:
		return false, "stopped in settings"
	case s.Window != nil && !s.Window.contains(now):
		return false, fmt.Sprintf("outside of the active window %s, %s", s.Window, now.Location())
	}
	return true, ""
}

func (w Window) contains(now time.Time) bool {
	hour, minute, second := now.Clock()
	at := time.Duration((hour*60+minute)*60+second) * time.Second
	if w.Start < w.Stop {
		return w.Start <= at && at < w.Stop
	}
	return w.Start <= at || at < w.Stop
}

// String returns the window as "23:00-06:00".
func (w Window) String() string {
	start, stop := int(w.Start.Minutes()), int(w.Stop.Minutes())
	return fmt.Sprintf("%02d:%02d-%02d:%02d", start/60, start%60, stop/60, stop%60)
}
