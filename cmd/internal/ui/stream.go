package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bounds of the resources of browsers.
const (
	maxStreams   = 200              // concurrent live pages
	maxRendered  = 64               // rendered pages of one round
	writeTimeout = 10 * time.Second // for a browser that does not read; it reconnects by itself
)

// stream sends a view for every new state. The id of an event is the age of the reading in
// milliseconds. A slow browser misses intermediate states, because only the event in progress is
// kept for it.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, v view) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		s.refuse(w, http.StatusServiceUnavailable, "Too many pages are open.")
		return
	}
	defer s.poller.look()()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	sent := -1
	for {
		now, changed := s.poller.now()
		if now.seq != sent && now.seq > 0 {
			sent = now.seq
			deadline := s.clock.Now().Wall.Add(writeTimeout)
			_ = out.SetWriteDeadline(deadline) // the writers of tests do not support it
			age := max(0, s.clock.Now().Wall.Sub(now.at).Milliseconds())
			_, err := fmt.Fprintf(w, "event: view\nid: %d\ndata: %s\n\n", age, s.rendered(r, v, now))
			if err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// lines formats the data of an event. A carriage return would end a line of the stream, so lines
// replaces it by the equivalent character reference.
var lines = strings.NewReplacer("\n", "\ndata: ", "\r", "&#13;")

// A rendered is a view of one state, rendered once for all its viewers.
type rendered struct {
	once sync.Once
	text []byte
}

// rendered returns a view of a state as lines of an event.
func (s *Server) rendered(r *http.Request, v view, now *state) []byte {
	kept := &rendered{}
	n := 0
	now.pages.Range(func(any, any) bool { n++; return n < maxRendered })
	if n < maxRendered {
		found, _ := now.pages.LoadOrStore(r.URL.RequestURI(), kept)
		kept = found.(*rendered)
	}
	kept.once.Do(func() {
		var b bytes.Buffer
		if err := s.templates.ExecuteTemplate(&b, "view", s.layout(r, v, now)); err != nil {
			fmt.Fprintf(&b, "<p class=problem>This page cannot be made. Please look at another one.</p>")
		}
		kept.text = []byte(lines.Replace(strings.TrimSpace(b.String())))
	})
	return kept.text
}
