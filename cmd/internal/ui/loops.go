package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/singleton"
)

type loopRow struct {
	singleton.Status
	Stopped, Malformed string
}

// Failed reports whether the latest round failed.
func (l loopRow) Failed() bool { return l.Failures > 0 || l.State == singleton.Failed }

// trouble ranks a row. Malformed documents come first, then failures, and then the rest.
func (l loopRow) trouble() int { return 2*boolean(l.Malformed != "") + boolean(l.Failed()) }

// Newest returns the latest rounds, the newest first.
func (l loopRow) Newest() []singleton.PastRun {
	runs := slices.Clone(l.Runs)
	slices.Reverse(runs)
	return runs
}

// A loopBook has the number of a database's loops and schedules, and the first of them.
type loopBook struct {
	rows                               []loopRow // malformed first, then failing, then stopped
	total, failing, stopped, malformed int
}

type loopList struct {
	Figures []figure
	Rows    []loopRow
	Total   int
	Listed  int // less than Total if not all are kept
}

func showLoops(r *http.Request, all loopBook) any {
	l := loopList{Total: all.total, Listed: len(all.rows)}
	show := r.URL.Query().Get("show")
	for _, row := range all.rows {
		is, known := map[string]bool{"failed": row.Failed(), "stopped": row.Stopped != "",
			"malformed": row.Malformed != ""}[show]
		if is || !known {
			l.Rows = append(l.Rows, row)
		}
	}
	l.Figures = []figure{
		figureOf(r, "All", "", all.total, ""),
		figureOf(r, "Failing", "failed", all.failing, "bad"),
		figureOf(r, "Stopped", "stopped", all.stopped, "late"),
		figureOf(r, "Malformed", "malformed", all.malformed, "bad"),
	}
	return l
}

func boolean(b bool) (n int) {
	count(&n, b)
	return n
}

// roundTitle describes a round of a loop.
func roundTitle(r singleton.PastRun) string {
	text := fmt.Sprintf("%s, begun %s by %s", r.State, r.Begun.UTC().Format("2006-01-02 15:04:05"),
		words.Shown(words.Short(r.Process), 200))
	if !r.Ended.IsZero() {
		text += fmt.Sprintf(", took %v", r.Took.Round(time.Millisecond))
	}
	if r.Error != "" {
		text += ": " + words.Shown(r.Error, 2_000)
	}
	return text
}

func (s *Server) readLoops(ctx context.Context) (found loopBook, err error) {
	if s.cfg.Client == nil {
		return found, errNoClient
	}
	store, err := singleton.NewStore(s.cfg.Client.Database(s.cfg.Database))
	if err != nil {
		return found, err
	}
	all, err := singleton.List(ctx, store)
	if err != nil {
		return found, err
	}
	rows := make([]loopRow, 0, len(all))
	for _, status := range all {
		row := loopRow{Status: status}
		switch {
		case status.Settings.Stopped:
			row.Stopped = "stopped"
		case status.Settings.Window != nil:
			row.Stopped = "outside " + status.Settings.Window.String()
		}
		if bad := errors.Join(status.Err, status.SettingsErr); bad != nil {
			row.Malformed = s.problem(bad)
		}
		count(&found.failing, row.Failed())
		count(&found.stopped, row.Stopped != "")
		count(&found.malformed, row.Malformed != "")
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b loopRow) int {
		return cmp.Or(-cmp.Compare(a.trouble(), b.trouble()),
			-cmp.Compare(a.Failures, b.Failures),
			-cmp.Compare(boolean(a.Stopped != ""), boolean(b.Stopped != "")))
	})
	found.total, found.rows = len(rows), slices.Clone(rows[:min(len(rows), maxLoops)])
	return found, nil
}
