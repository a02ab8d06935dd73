package distlock

import (
	"context"
	"strings"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
	"mongodlm/pinger"
)

// This file makes the events, at the places where the log tells the same.

// notAcquired tells that a call ended without the lock.
func (l *DistributedLock) notAcquired(kind EventKind, o acquireOptions, err error) {
	m := l.m
	if err == nil || !m.events.on() {
		return
	}
	m.events.emit(o.parent, Event{
		Kind: kind, Name: l.name, Why: o.why, Mode: modeWord(o.mode), Process: m.Process(),
		Waited: m.events.since(o.began), Err: err,
	})
}

// acquired tells of a guard that an attempt has got.
func (a *attempt) acquired(h *holding) {
	events := a.m.events
	if !events.on() {
		return
	}
	kind := EventAcquired
	switch {
	case h.evidence != "" && !strings.HasPrefix(h.evidence, brokenWord):
		kind = EventTakenOver
	case a.inTurn:
		kind = EventGranted
	}
	event := h.event(kind)
	event.Waited, event.Previous = events.since(a.began), a.previous
	event.Rule, event.Evidence = ruleOf(h.evidence), h.evidence
	events.emit(a.parent, event)
}

// event is one of a guard.
func (h *holding) event(kind EventKind) Event {
	return Event{
		Kind: kind, Name: h.session.Name, Why: h.why, Mode: modeWord(h.mode), Process: h.process,
		Session: h.session.TS, Fence: h.fence, Label: h.label,
	}
}

// over tells what became of a guard; took is how long its release took.
func (h *holding) over(kind EventKind, took time.Duration, err error) {
	events := h.m.events
	if !events.on() {
		return
	}
	event := h.event(kind)
	event.Waited, event.Held, event.Err = took, events.since(h.since), err
	events.emit(h.ctx, event)
}

// ruleOf reads the rule out of evidence as package contend words it; "" when there is none.
func ruleOf(evidence string) string {
	rest, ok := strings.CutPrefix(evidence, "rule ")
	rule, _, found := strings.Cut(rest, ": ")
	if !ok || !found {
		return ""
	}
	switch rule {
	case "watch", "witnesses", "at once", "condemned", "lease", "silent":
		return rule
	}
	return ""
}

// released tells of a release that began at start.
func (h *holding) released(start time.Duration) {
	if h.m.events.on() && h.wasHanded() {
		h.over(EventReleased, h.m.events.since(start), h.outcome)
	}
}

// A background tells of what the heartbeat and the judge do.
type background struct{ m *Manager }

// pingerTold is what the pinger is to tell; nil when nobody wants to know.
func (m *Manager) pingerTold() pinger.Told {
	if !m.events.on() {
		return nil
	}
	return background{m}
}

// judgeTold is the same for the judge.
func (m *Manager) judgeTold() contend.Told {
	if !m.events.on() {
		return nil
	}
	return background{m}
}

func (b background) emit(e Event) { b.m.events.emit(context.Background(), e) }

// Pinged implements [pinger.Told].
func (b background) Pinged(process string, took, late time.Duration, err error) {
	kind := EventPing
	if err != nil {
		kind = EventPingFailed
	}
	skew := b.m.pinger.Stats().Skew
	b.emit(Event{Kind: kind, Process: process, Waited: took, Late: late, Skew: skew, Err: err})
}

// Over implements [pinger.Told].
func (b background) Over(process string, cause error) {
	b.emit(Event{Kind: EventProcessOver, Process: process, Err: cause})
}

// ReleasedLate implements [pinger.Told].
func (b background) ReleasedLate(s catalog.Session) {
	b.emit(Event{Kind: EventReleasedLate, Name: s.Name, Process: b.m.Process(), Session: s.TS})
}

// Condemned implements [contend.Told].
func (b background) Condemned(process, rule, evidence string) {
	b.emit(Event{
		Kind: EventCondemned, Process: b.m.Process(), Previous: process, Rule: rule, Evidence: evidence,
	})
}

// Evicted implements [contend.Told].
func (b background) Evicted(lock string, dead contend.Judged, evidence string) {
	b.emit(Event{
		Kind: EventEvicted, Name: lock, Why: dead.Why, Mode: modeWord(dead.Mode), Process: b.m.Process(),
		Session: dead.TS, Fence: dead.Fence, Previous: dead.Process, Rule: dead.Rule(), Evidence: evidence,
	})
}
