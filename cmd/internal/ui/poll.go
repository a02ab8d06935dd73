package ui

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// busyShare bounds the load on the server. The pause after a round is at least nine times the
// duration of the round.
const busyShare = 10

// A state is the result of one round of reads, which all pages share. Once it is published, only
// its cache of rendered pages changes.
type state struct {
	reading[*listing]     // the listing of the latest round
	seq               int // rises with every round
	took              time.Duration
	since             time.Time // the time of the first of the latest consecutive failures
	pages             sync.Map  // by path: a *rendered
}

// A poller runs one round of reads per interval for all open pages together. It pauses while no
// page is open.
type poller struct {
	clock    clock.Clock
	interval time.Duration
	read     func(context.Context) (*listing, error)
	redact   func(error) string
	record   *record

	round    sync.Mutex    // allows one round at a time, and guards pauseEnd; locked before mu
	pauseEnd time.Duration // the end of the pause between rounds, in monotonic time

	mu      sync.Mutex // guards the rest
	viewers int
	latest  *state
	changed chan struct{} // closed when a new state exists
	loop    bool          // run is running
	wg      sync.WaitGroup

	ctx    context.Context // the context of the rounds
	cancel context.CancelFunc
}

func newPoller(ctx context.Context, interval time.Duration,
	read func(context.Context) (*listing, error), redact func(error) string) *poller {
	p := &poller{clock: clock.From(ctx), interval: interval, read: read, redact: redact,
		record: &record{}, latest: &state{}, changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// close ends the loop, waits for it, and prevents further loops.
func (p *poller) close() {
	p.mu.Lock()
	p.cancel() // with mu held, so that addViewer starts no further loop
	p.mu.Unlock()
	p.wg.Wait()
}

// addViewer registers a viewer. The returned function removes the viewer.
func (p *poller) addViewer() (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewers++
	if !p.loop && p.ctx.Err() == nil {
		p.loop = true
		p.wg.Go(p.run)
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.viewers--
	})
}

// run runs rounds while a page has a viewer.
func (p *poller) run() {
	for {
		if !clock.Sleep(p.clock, p.refresh(), p.ctx.Done()) {
			return
		}
		p.mu.Lock()
		if p.viewers == 0 {
			p.loop = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// now returns the latest state, and a channel that is closed when a newer state exists.
func (p *poller) now() (*state, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, p.changed
}

// refresh runs a round if the pause after the latest round is over. It returns the time until the
// next round.
func (p *poller) refresh() time.Duration {
	p.round.Lock()
	defer p.round.Unlock()
	begun := p.clock.Now()
	before, _ := p.now()
	if left := p.pauseEnd - begun.Mono; before.seq > 0 && left > 0 {
		return left
	}
	found, err := p.read(p.ctx) // the round outlives the caller, because viewers share it
	if err != nil && p.ctx.Err() != nil {
		return p.interval
	}
	ended := p.clock.Now()
	problem := ""
	if err != nil {
		problem = p.redact(err)
	}
	next := &state{reading: before.next(found, problem, ended.Wall), seq: before.seq + 1,
		took: ended.Mono - begun.Mono, since: before.since}
	switch {
	case err != nil && before.problem == "":
		next.since = ended.Wall
	case err == nil:
		p.record.compare(found, ended.Wall)
	}
	p.mu.Lock()
	p.latest = next
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	pause := max(p.interval, (busyShare-1)*next.took)
	p.pauseEnd = ended.Mono + pause
	return pause
}

// Bounds on the resources that browsers use.
const (
	maxStreams   = 200              // concurrent live pages
	maxRendered  = 64               // rendered pages of one round
	writeTimeout = 10 * time.Second // for a browser that does not read; a live page reconnects
)

// stream sends the view of every new state to a browser. The id of an event is the age of the
// reading in milliseconds. A slow browser misses intermediate states, because stream does not queue
// events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, v view) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		s.refuse(w, http.StatusServiceUnavailable, "Too many pages are open.")
		return
	}
	defer s.poller.addViewer()()
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

// eventData formats the data of an event. A carriage return would end a line of the stream, so
// eventData replaces it with the equivalent character reference.
var eventData = strings.NewReplacer("\n", "\ndata: ", "\r", "&#13;")

// A rendered is the text of a view, rendered once for all viewers.
type rendered struct {
	once sync.Once
	text []byte
}

// rendered returns a view of a state as the data of an event.
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
			fmt.Fprintf(&b, "<p class=problem>This page cannot be rendered. Use another page.</p>")
		}
		kept.text = []byte(eventData.Replace(strings.TrimSpace(b.String())))
	})
	return kept.text
}
