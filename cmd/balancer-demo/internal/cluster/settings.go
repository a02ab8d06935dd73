package cluster

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// BalancerSettings is the _id of the balancer's document in config.settings.
const BalancerSettings = "balancer"

// Settings is what config.settings says of the balancer. The zero value lets it run at any time,
// which is also what no document means.
type Settings struct {
	Stopped bool
	Window  *Window // nil when it may run at any hour
}

// A Window is a time of the day, every day: from Start to just before Stop, over midnight when
// Stop is the smaller one. mongos counted the minute of Stop in up to its first second.
type Window struct {
	Start, Stop time.Duration // since midnight, never equal
}

// ParseSettings understands the document {_id: "balancer"} of config.settings: stopped, mode
// (MongoDB 3.4) and activeWindow. A nil raw, when there is no document, is the zero Settings.
// Error: *catalog.MalformedError that names the field.
func ParseSettings(raw bson.Raw) (Settings, error) {
	if raw == nil {
		return Settings{}, nil
	}
	d := open(SettingsCollection, raw)
	s := Settings{Stopped: d.flag("stopped")}
	switch mode := d.optionalText("mode"); mode {
	case "", "full":
	case "off", "autoSplitOnly":
		s.Stopped = true
	default:
		d.fail("mode", "is %s; it must be full, off or autoSplitOnly", quoted(mode))
	}
	if d.has("activeWindow") {
		s.Window = parseWindow(d)
	}
	if err := d.err(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

func parseWindow(d *document) *Window {
	raw, ok := d.fields["activeWindow"].DocumentOK()
	if !ok {
		d.fail("activeWindow", "must be a document with start and stop, not %s",
			describe(d.fields["activeWindow"]))
		return nil
	}
	in := d.within("activeWindow", raw)
	w := &Window{Start: in.clock("start"), Stop: in.clock("stop")}
	if w.Start == w.Stop {
		in.fail("stop", "is the same as start; remove activeWindow to run all day")
	}
	if d.bad == nil {
		d.bad = in.bad
	}
	return w
}

// clock reads a time of the day, "6:00" or "06:00".
func (d *document) clock(field string) time.Duration {
	text, ok := d.fields[field].StringValueOK()
	if !ok {
		d.fail(field, `must be a text like "23:00", not %s`, describe(d.fields[field]))
		return 0
	}
	at, err := time.Parse("15:04", text)
	if err != nil {
		d.fail(field, `is %s; it must be an hour and a minute like "23:00"`, quoted(text))
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
}

// MayRun says whether the balancer may start a round at now, and why not. The window is one of
// now's own time zone, as mongos took that of the machine it ran on.
func (s Settings) MayRun(now time.Time) (ok bool, reason string) {
	if s.Stopped {
		return false, "the balancer is stopped in config.settings"
	}
	if s.Window == nil || s.Window.contains(now) {
		return true, ""
	}
	return false, fmt.Sprintf("%s is outside of the active window %s",
		now.Format("15:04"), s.Window)
}

func (w Window) contains(now time.Time) bool {
	hour, minute, second := now.Clock()
	at := time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute +
		time.Duration(second)*time.Second
	if w.Start < w.Stop {
		return w.Start <= at && at < w.Stop
	}
	return w.Start <= at || at < w.Stop
}

// String is the window as "23:00-06:00".
func (w Window) String() string {
	clock := func(d time.Duration) string {
		return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
	}
	return clock(w.Start) + "-" + clock(w.Stop)
}
