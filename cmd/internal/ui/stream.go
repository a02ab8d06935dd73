package ui

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"mongodlm/internal/clock"
)

// Bounds on the resources that browsers use.
const (
	maxStreams   = 200              // concurrent live pages
	writeTimeout = 10 * time.Second // for a browser that does not read; a live page reconnects
)

// stream sends the view of every new state to a browser. The id of an event is the age of the
// reading in milliseconds. A slow browser misses intermediate states, because stream does not queue
// events. Rounds run only while a stream or a page asks for them.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, v view) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many pages are open.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	sent := 0
	for s.ctx.Err() == nil {
		now := s.locks.get(r.Context(), s, s.read)
		if now.seq == sent {
			if !clock.Sleep(s.clock, now.due-s.clock.Now().Mono, r.Context().Done()) {
				return
			}
			continue
		}
		sent = now.seq
		wall := s.clock.Now().Wall
		_ = out.SetWriteDeadline(wall.Add(writeTimeout)) // the writers of tests do not support it
		_, err := fmt.Fprintf(w, "event: view\nid: %d\ndata: %s\n\n",
			max(0, wall.Sub(now.at).Milliseconds()), s.rendered(r, v, now))
		if err != nil || out.Flush() != nil {
			return
		}
	}
}

// eventData formats the data of an event. A carriage return would end a line of the stream, so
// eventData replaces it with the equivalent character reference.
var eventData = strings.NewReplacer("\n", "\ndata: ", "\r", "&#13;")

// rendered returns a view of a state as the data of an event.
func (s *Server) rendered(r *http.Request, v view, now state) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, "view", s.layout(r, v, now)); err != nil {
		b.WriteString("<p class=problem>This page cannot be rendered. Use another page.</p>")
	}
	return eventData.Replace(strings.TrimSpace(b.String()))
}
