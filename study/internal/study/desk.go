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

// Desk serves a page on which a reader turns the knobs of a case and sees the play again. The address
// has all settings: case, generation (more than one, none: all), and the knobs by their names.
func Desk() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(out http.ResponseWriter, r *http.Request) {
		asked, status := ask(r.URL.Query()), http.StatusOK
		var plays []Play
		if asked.err == nil {
			plays, asked.err = Run(r.Context(), []Case{asked.c}, asked.generations)
		}
		if asked.err != nil {
			status = http.StatusBadRequest
		}
		out.Header().Set("Content-Type", "text/html; charset=utf-8")
		out.Header().Set("Cache-Control", "no-store")
		out.WriteHeader(status)
		_, _ = fmt.Fprint(out, asked.page(plays)) // of a reader who is gone
	})
	mux.HandleFunc("GET /sweep", func(out http.ResponseWriter, r *http.Request) {
		sw, names, ok := FindSweep(r.URL.Query().Get("of"))
		if !ok {
			http.Error(out, "there are "+strings.Join(names, ", "), http.StatusNotFound)
			return
		}
		w := &page{}
		w.head("Where does it break? How mongos' locks fail", pageStyle+deskStyle)
		w.add("<header>\n<h1>Where does it break?</h1>\n<p>One knob is turned further and further (case %s, %s): from where on "+
			"%s. <a href=\"/\">All knobs</a></p>\n</header>\n<main>\n", esc(sw.Case), esc(sw.Knob), esc(sw.Breaks))
		var all []Swept
		for _, g := range Generations() {
			found, err := sw.Run(r.Context(), g)
			if err != nil {
				return // the reader is gone
			}
			all = append(all, found)
		}
		w.sweep(sw, all)
		w.foot("")
		out.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprint(out, w.String()) // of a reader who is gone
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

// asked is what the address of a page asks for.
type asked struct {
	c           Case
	generations []Generation // that are played
	named       []Generation // that were named
	knobs       []Knob
	err         error
}

// ask reads the address. Of a wrong one the case is known that is nearest.
func ask(query url.Values) (a asked) {
	name := query.Get("case")
	if name == "" {
		name = "pause"
	}
	c, nearest, ok := FindCase(name)
	if !ok {
		c, _, _ = FindCase(nearest[0])
		a.err = fmt.Errorf("there is no case %.60q; most like it are %s", name, strings.Join(nearest, ", "))
	}
	for _, name := range query["generation"] {
		g, names, ok := FindGeneration(name)
		if !ok {
			a.err = fmt.Errorf("there is no generation %.60q; there are %s, and releases such as 2.4.14", name, strings.Join(names, ", "))
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
	if a.c = c; a.err == nil {
		if c, a.err = c.With(settings...); a.err == nil {
			a.c = c
		}
	}
	a.knobs = a.c.Knobs()
	for i, k := range a.knobs {
		if a.err != nil { // what is wrong stays to be mended
			a.knobs[i].Set = strings.Join(query[k.Name], " ")
		}
	}
	return a
}

// page writes the page: the knobs, and what is played with them.
func (a asked) page(plays []Play) string {
	w := &page{}
	w.head("Turn the knobs: how mongos' locks fail", pageStyle+deskStyle)
	w.add("<header>\n<h1>Turn the knobs</h1>\n<p>A case, played by the generations of mongos' lock and by this one, as you " +
		"set it. The address keeps the settings. Where does it break? ")
	for _, sw := range Sweeps() {
		w.add("<a href=\"/sweep?of=%s\">%s</a> ", sw.Name, sw.Name)
	}
	w.add("</p>\n</header>\n<main>\n")
	w.hatch()
	w.form(a)
	w.add("<div id=\"plays\" aria-live=\"polite\">\n")
	if a.err != nil {
		w.add("<p class=\"error\" role=\"alert\">%s</p>\n", esc(a.err.Error()))
	} else {
		w.result(a, plays)
	}
	w.add("</div>\n")
	w.legend()
	w.foot(pageScript + deskScript)
	return w.String()
}

// result draws the plays.
func (w *page) result(a asked, plays []Play) {
	c := a.c
	w.add("<section id=\"%s\" data-length=\"%d\">\n<h2>%s <small>%s</small></h2>\n<p>%s %s %s</p>\n", c.Name,
		milliseconds(c.Length), esc(c.Title), esc(c.Name), esc(c.Story), esc(c.Wrong), esc(c.Rule))
	command := "go run ./study " + c.Name
	for _, setting := range c.Set {
		command += " --set " + setting
	}
	if len(c.Set) > 0 {
		w.add("<p>Set otherwise: %s.</p>\n", esc(strings.Join(c.Set, ", ")))
	}
	w.add("<p class=\"links\"><code>%s</code></p>\n", esc(command))
	for _, p := range plays {
		for _, accident := range p.Missed {
			w.add("<p>Did not happen in %s: %s.</p>\n", esc(p.Generation), esc(accident))
		}
	}
	w.plays(c, a.generations, plays)
}

// form writes the knobs: a field each, and a slider for what is a length of time.
func (w *page) form(a asked) {
	w.add("<form id=\"knobs\" action=\"/\">\n<p><label>case <select name=\"case\">")
	for _, c := range append(Cases(), Quiet()) {
		w.add("<option value=\"%s\"%s>%s</option>", c.Name, chosen(c.Name == a.c.Name, "selected"), esc(c.Title))
	}
	w.add("</select></label> ")
	all := slices.Concat(Generations(), Others())
	isOf := func(some []Generation, g Generation) bool {
		return slices.ContainsFunc(some, func(o Generation) bool { return o.Name == g.Name })
	}
	for _, g := range a.named { // releases have no box else
		if !isOf(all, g) {
			all = append(all, g)
		}
	}
	for _, g := range all {
		on := isOf(a.named, g)
		w.add("<label><input type=\"checkbox\" name=\"generation\" value=\"%s\"%s> %s</label> ", g.Name, chosen(on, "checked"),
			esc(g.Name))
	}
	w.add("<button>play</button></p>\n<datalist id=\"late\">")
	for _, k := range []string{"ping:5m", "grab:20m", "take-over:2s", "release:1m", "write:20m", "none"} {
		w.add("<option value=\"%s\">", k)
	}
	w.add("</datalist>\n<div class=\"knobs\">\n")
	group := ""
	for _, k := range a.knobs {
		if who := cmp.Or(k.who, "all"); who != group {
			if group != "" {
				w.add("</fieldset>\n")
			}
			w.add("<fieldset><legend>%s</legend>\n", who)
			group = who
		}
		w.knob(k)
	}
	w.add("</fieldset>\n</div>\n</form>\n")
}

func chosen(is bool, word string) string {
	if is {
		return " " + word
	}
	return ""
}

// knob writes one field.
func (w *page) knob(k Knob) {
	w.add("<label title=\"%s: %s\">%s ", k.Name, esc(k.Form), esc(k.Says))
	if k.Form == commandForm {
		w.add("<select name=\"%s\"><option value=\"\">%s</option>", k.Name, orAs(k.Is))
		options := []string{"none"}
		for _, kind := range kindNames {
			options = append(options, strings.ReplaceAll(string(kind), " ", "-"))
		}
		if k.Set != "" && !slices.Contains(options, k.Set) {
			options = append(options, k.Set)
		}
		for _, option := range options {
			w.add("<option%s>%s</option>", chosen(option == k.Set, "selected"), esc(option))
		}
		w.add("</select></label>\n")
		return
	}
	list := ""
	if k.Form == delayForm {
		list = ` list="late"`
	}
	w.add("<input name=\"%s\" value=\"%s\" placeholder=\"%s\" size=\"12\"%s></label>\n", k.Name, esc(k.Set), orAs(k.Is), list)
	if least, most, step := k.reach(); most > 0 {
		length, _, _ := strings.Cut(k.Set, "@")
		if k.Set == "" {
			length, _, _ = strings.Cut(k.Is, "@")
		}
		d, err := time.ParseDuration(length)
		if k.Name == "takeover" && err != nil {
			d = timeout20
		}
		w.add("<input type=\"range\" data-of=\"%s\" min=\"%d\" max=\"%d\" step=\"%d\" value=\"%d\" aria-label=\"%s\">\n", k.Name,
			least.Milliseconds(), most.Milliseconds(), step.Milliseconds(), d.Milliseconds(), esc(k.Name+": "+k.Says))
	}
}

func orAs(is string) string {
	if is == "" {
		return "-"
	}
	return esc(is)
}

// reach is how far the slider of a knob reaches; most 0: it has none.
func (k Knob) reach() (least, most, step time.Duration) {
	switch k.dial.name {
	case "takeover":
		return 2 * m, 30 * m, 30 * s
	case "latency":
		return 1 * ms, 2 * s, 1 * ms
	case "clock", "step", "server.clock", "mirror.clock", "election":
		return -30 * m, 30 * m, 15 * s
	case "pause", "cut", "outage":
		return 0, 30 * m, 15 * s
	}
	return 0, 0, 0
}
