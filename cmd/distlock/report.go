package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"mongodlm/catalog"
	"mongodlm/configserver"
)

type report struct {
	Fit             bool     `json:"fit"`
	Hosts           string   `json:"hosts"`
	Database        string   `json:"database"`
	Kind            string   `json:"kind"`
	Version         string   `json:"version"`
	Embedded        bool     `json:"embedded"`
	ConfigServer    bool     `json:"configServer"`
	Transactions    bool     `json:"transactions"`
	ChangeStreams   bool     `json:"changeStreams"`
	PipelineUpdates bool     `json:"pipelineUpdates"`
	Clock           *clocks  `json:"clock,omitempty"`
	Race            *race    `json:"race,omitempty"` // absent without a race
	Weaker          []string `json:"weaker"`
	Warnings        []string `json:"warnings"`
	// MissingIndexes are the commands that create the missing indexes. Each has a warning, too.
	MissingIndexes []string `json:"missingIndexes"`
	// CreatedIndexes are the commands that --create-indexes has carried out.
	CreatedIndexes    []string `json:"createdIndexes"`
	MissingPrivileges []lack   `json:"missingPrivileges"`
	Members           []member `json:"members"`      // for a replica set only
	WriteConcern      string   `json:"writeConcern"` // replica set: the acknowledgment of a write
	Refused           []string `json:"refused"`
}

type clocks struct {
	AheadMS     int64 `json:"serverAheadMS"`
	RoundTripMS int64 `json:"roundTripMS"`
}

type race struct {
	Contenders    int   `json:"contenders"`
	Acquire       tally `json:"acquire"`
	CompareAndSet tally `json:"compareAndSet"`
}

// tally is [configserver.Tally] with names for JSON.
type tally struct {
	Rounds  int `json:"rounds"`
	One     int `json:"oneWinner"`
	Several int `json:"severalWinners"`
	None    int `json:"noWinner"`
}

func (r *report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

func newReport(s catalog.Server, hosts, database string) report {
	return report{
		Hosts: hosts, Database: database,
		Kind: string(s.Kind), Version: catalog.Printable(s.Version, 40), Embedded: s.Front,
		ConfigServer: s.ConfigServer, Transactions: s.Transactions,
		ChangeStreams: s.ChangeStreams, PipelineUpdates: s.PipelineUpdates,
		Weaker: weaker(s, database), Warnings: []string{}, Refused: []string{},
		MissingIndexes: []string{}, CreatedIndexes: []string{}, MissingPrivileges: []lack{},
		Members: []member{},
	}
}

func (r report) print(w io.Writer, how layout) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	line("server", "%s", r.Hosts)
	kind := r.Kind
	if r.Embedded {
		kind += " behind the front of the embedded config server"
	}
	line("kind", "%s", kind)
	line("version", "%s", r.Version)
	line("config server", "%s", yesNo(r.ConfigServer))
	line("database", "%s", r.Database)
	line("transactions", "%s", yesNo(r.Transactions))
	line("change streams", "%s", yesNo(r.ChangeStreams))
	line("pipeline updates", "%s", yesNo(r.PipelineUpdates))
	if r.Clock != nil {
		ahead := time.Duration(r.Clock.AheadMS) * time.Millisecond
		side := "ahead of"
		if ahead < 0 {
			side = "behind"
		}
		line("clock", "%v %s this machine, round trip %d ms", ahead.Abs(), side, r.Clock.RoundTripMS)
	}
	if r.WriteConcern != "" {
		line("writes wait for", "%s", r.WriteConcern)
	}
	for _, m := range r.Members {
		line("member", "%s", m)
	}
	if r.Race != nil {
		line("contenders", "%d", r.Race.Contenders)
		line("acquire", "%v", configserver.Tally(r.Race.Acquire))
		line("compare-and-set", "%v", configserver.Tally(r.Race.CompareAndSet))
	} else {
		line("races", "not run")
	}
	_ = t.Flush() // a reader that is gone needs no report
	list(w, how, "weaker than a replica set with a database of its own", r.Weaker)
	list(w, how, "indexes created", r.CreatedIndexes)
	list(w, how, "warnings", r.Warnings)
	list(w, how, "refused", r.Refused)
	verdict := "fit to keep locks"
	if !r.Fit {
		verdict = "NOT fit to keep locks"
	}
	fmt.Fprintf(w, "\nverdict: %s\n", verdict)
}

func list(w io.Writer, how layout, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, item := range items {
		wrap(w, how, "  - "+item, "    ")
	}
}
