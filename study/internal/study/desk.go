package study

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

//go:embed desk.css
var deskStyle string

//go:embed desk.js
var deskScript string

// Desk serves a page on which a reader turns the knobs of a case and sees the play again. The
// address has all settings: case, generation (more than one, none: all), and the knobs by their
// names.
func Desk() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(out http.ResponseWriter, r *http.Request) {
		a := ask(r.URL.Query())
		if a.Err == nil {
			a.Plays, a.Err = Run(r.Context(), []Case{a.Case}, a.generations)
		}
		status := http.StatusOK
		if a.Err != nil {
			status = http.StatusBadRequest
		}
		out.Header().Set("Cache-Control", "no-store")
		give(out, status, framed("Turn the knobs: how mongos' locks fail", pageStyle+deskStyle,
			pageScript+deskScript, filled("desk", a)))
	})
	mux.HandleFunc("GET /sweep", func(out http.ResponseWriter, r *http.Request) {
		sw, names, ok := FindSweep(r.URL.Query().Get("of"))
		if !ok {
			http.Error(out, "there are "+strings.Join(names, ", "), http.StatusNotFound)
			return
		}
		var all []Swept
		for _, g := range Generations() {
			found, err := sw.Run(r.Context(), g)
			if err != nil {
				return // the reader is gone
			}
			all = append(all, found)
		}
		give(out, http.StatusOK, framed("Where does it break? How mongos' locks fail",
			pageStyle+deskStyle, "", filled("sweep", struct {
				Sweep
				All     []Swept
				Drawing string
			}{sw, all, sw.drawn(all)})))
	})
	one := make(chan struct{}, 1) // at a time
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		select {
		case one <- struct{}{}:
			defer func() { <-one }()
			mux.ServeHTTP(out, r)
		case <-r.Context().Done():
		}
	})
}

// give gives a page to a reader, who may be gone.
func give(out http.ResponseWriter, status int, page string) {
	out.Header().Set("Content-Type", "text/html; charset=utf-8")
	out.WriteHeader(status)
	_, _ = fmt.Fprint(out, page)
}

// asked is what the address of a page asks for.
type asked struct {
	shown
	generations []Generation // that are played
	named       []Generation // that were named
	Knobs       []Knob
	Err         error
}

// ask reads the address. Of a wrong one the case is known that is nearest.
func ask(query url.Values) (a asked) {
	name := cmp.Or(query.Get("case"), "pause")
	c, nearest, ok := FindCase(name)
	if !ok {
		c, _, _ = FindCase(nearest[0])
		a.Err = fmt.Errorf("there is no case %.60q; most like it are %s", name,
			strings.Join(nearest, ", "))
	}
	for _, name := range query["generation"] {
		g, names, ok := FindGeneration(name)
		if !ok {
			a.Err = fmt.Errorf("there is no generation %.60q; there are %s, and releases such as 2.4.14",
				name, strings.Join(names, ", "))
			continue
		}
		a.named = append(a.named, g)
	}
	if a.generations = a.named; a.generations == nil {
		a.generations = Generations()
	}
	var settings []string
	for name, values := range query {
		for value := range strings.FieldsSeq(strings.Join(values, " ")) {
			if name != "case" && name != "generation" {
				settings = append(settings, name+"="+value)
			}
		}
	}
	slices.Sort(settings)
	if a.Case = c; a.Err == nil {
		if c, a.Err = c.With(settings...); a.Err == nil {
			a.Case = c
		}
	}
	a.Knobs = a.Case.Knobs()
	for i, k := range a.Knobs {
		if a.Err != nil { // what is wrong stays to be mended
			a.Knobs[i].Set = strings.Join(query[k.Name], " ")
		}
	}
	return a
}

// Sweeps and Cases are what there is to be chosen.
func (a asked) Sweeps() []Sweep { return Sweeps() }

// Cases are all cases.
func (a asked) Cases() []Case { return append(Cases(), Quiet()) }

// Boxes are the generations that have a box: also a release that was named.
func (a asked) Boxes() []Generation {
	all := slices.Concat(Generations(), Others())
	for _, g := range a.named {
		if !isOf(all, g) {
			all = append(all, g)
		}
	}
	return all
}

// On reports whether a generation was named.
func (a asked) On(g Generation) bool { return isOf(a.named, g) }

func isOf(some []Generation, g Generation) bool {
	return slices.ContainsFunc(some, func(o Generation) bool { return o.Name == g.Name })
}

// Group is whose knob it is.
func (k Knob) Group() string { return cmp.Or(k.who, "all") }

// Options are what can be chosen of a knob that names a command only; none for any other.
func (k Knob) Options() []string {
	if k.Form != commandForm {
		return nil
	}
	options := append([]string{"none"}, kindNames()...)
	if k.Set != "" && !slices.Contains(options, k.Set) {
		options = append(options, k.Set)
	}
	return options
}

// Delays reports whether it delays a command.
func (k Knob) Delays() bool { return k.Form == delayForm }

// A slider is that of a knob, and where it stands.
type slider struct {
	Knob
	Least, Most, Step, At time.Duration
}

// Slider is the slider of a knob that is a length of time; nil: it has none.
func (k Knob) Slider() *slider {
	length, _, _ := strings.Cut(cmp.Or(k.Set, k.Is), "@")
	at, err := time.ParseDuration(length)
	switch k.dial.name {
	case "takeover":
		if err != nil {
			at = timeout20
		}
		return &slider{k, 2 * m, 30 * m, 30 * s, at}
	case "latency":
		return &slider{k, 1 * ms, 2 * s, 1 * ms, at}
	case "clock", "step", "server.clock", "mirror.clock", "election":
		return &slider{k, -30 * m, 30 * m, 15 * s, at}
	case "pause", "cut", "outage":
		return &slider{k, 0, 30 * m, 15 * s, at}
	}
	return nil
}
