package study

import (
	_ "embed"
	"encoding/json"
	"html"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

//go:embed page.tmpl
var pageTemplate string

// templates are those of page.tmpl. What comes from outside, and any text, goes through esc.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"esc": html.EscapeString, "join": strings.Join,
	"areas": func() [][2]string { return areas }, "glyphs": func() [][3]string { return glyphs },
}).Parse(pageTemplate))

// filled is a template with data.
func filled(name string, data any) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		panic("study: " + err.Error())
	}
	return b.String()
}

// framed is a whole page that needs nothing beside it.
func framed(title, style, script, body string) string {
	return filled("frame", struct{ Title, Style, Script, Body string }{title, style,
		strings.NewReplacer("WIDTH", strconv.Itoa(drawWidth-drawLeft-6), "LEFT",
			strconv.Itoa(drawLeft), "ALL", strconv.Itoa(drawWidth)).Replace(script), body})
}

// Page writes all plays, and those of others if there are any, as one HTML page. Its links lead
// from the folder docs of the sources.
func Page(cases []Case, generations []Generation, plays, others []Play) string {
	data := struct{ All, Others *board }{
		All: boardOf("all", "All cases by generations", cases, generations, plays)}
	if len(others) > 0 {
		data.Others = boardOf("others", "Cases by the locks of others", OthersCases(), Others(), others)
	}
	return framed("How mongos' locks fail", pageStyle, pageScript, filled("study", data))
}

// A board is a table of cases by generations.
type board struct {
	ID, Label   string
	Generations []Generation
	Rows        []shown
}

func boardOf(id, label string, cases []Case, of []Generation, plays []Play) *board {
	b := &board{ID: id, Label: label, Generations: of}
	for i, c := range cases {
		b.Rows = append(b.Rows, shown{c, plays[i*len(of) : (i+1)*len(of)]})
	}
	return b
}

// shown is a case with its plays, as a page shows it.
type shown struct {
	Case
	Plays []Play
}

// Verdict is the class of a play.
func (p Play) Verdict() string {
	switch o := p.Outcome; {
	case o.Not != "":
		return "none"
	case o.Bad():
		return "bad"
	case o.Two > 0, o.Idle > 17*time.Minute, o.Overtaken > 1:
		return "slow"
	}
	return "good"
}

// Came says in a few words what came of a play.
func (p Play) Came() string { return strings.Join(p.Outcome.Parts(), ", ") }

// Zoom is from when to when its decisive seconds are.
func (p Play) Zoom() string {
	from, until := p.zoomed()
	return Time(from) + " to " + Time(until)
}

// Data is what the script of the page knows of the documents of each play.
func (c shown) Data() string {
	data := make([]documentData, len(c.Plays))
	for i, p := range c.Plays {
		data[i] = p.documentData()
	}
	text, err := json.Marshal(data) // escapes what could end the script
	if err != nil {
		panic("study: " + err.Error())
	}
	return string(text)
}

// Worth is the instant that is worth looking at first: when there were two holders, else the
// middle.
func (c shown) Worth() time.Duration {
	for _, p := range c.Plays {
		if p.Outcome.Two > 0 {
			return (p.Outcome.TwoFrom + time.Minute).Round(time.Second)
		}
	}
	return c.Length / 2
}

// Anchor is the row of a hole in semantics.md, else its rules.
func (c Case) Anchor() string {
	if strings.ContainsAny(c.Hole[:1], "HG") {
		return strings.ToLower(c.Hole)
	}
	return "the-rules"
}

// File and Function are where ours does what stops it.
func (c Case) File() string { return strings.Fields(c.Where)[0] }

// Function is that in File.
func (c Case) Function() string { return strings.Fields(c.Where)[1] }
