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

// A loopRow is one loop or schedule.
type loopRow struct {
	singleton.Status
	Stopped, Malformed string
}

// Failed reports whether somebody should look: the latest round failed, or a document is malformed.
func (l loopRow) Failed() bool {
	return l.Malformed != "" || l.Failures > 0 || l.State == singleton.Failed
}

// Newest are the latest rounds, the newest first.
func (l loopRow) Newest() []singleton.PastRun {
	runs := slices.Clone(l.Runs)
	slices.Reverse(runs)
	return runs
}

// failed counts the loops that somebody should look at.
func failed(rows []loopRow) (n int) {
	for _, l := range rows {
		count(&n, l.Failed())
	}
	return n
}

// A loopList is the page of loops.
type loopList struct {
	Figures []figure
	Rows    []loopRow
	Total   int
}

// showLoops puts those that fail first.
func showLoops(r *http.Request, rows []loopRow) any {
	l := loopList{Total: len(rows)}
	stopped := 0
	show := r.URL.Query().Get("show")
	for _, row := range rows {
		count(&stopped, row.Stopped != "")
		if show != "failed" && show != "stopped" || show == "failed" && row.Failed() ||
			show == "stopped" && row.Stopped != "" {
			l.Rows = append(l.Rows, row)
		}
	}
	l.Figures = []figure{
		figureOf(r, "All", "", len(rows), ""),
		figureOf(r, "Failing", "failed", failed(rows), "bad"),
		figureOf(r, "Stopped", "stopped", stopped, "late"),
	}
	slices.SortStableFunc(l.Rows, func(a, b loopRow) int {
		return cmp.Or(-cmp.Compare(boolean(a.Failed()), boolean(b.Failed())),
			-cmp.Compare(a.Failures, b.Failures))
	})
	return l
}

func boolean(b bool) (n int) {
	count(&n, b)
	return n
}

// roundTitle is what is known of a round of a loop.
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

func (s *Server) readLoops(ctx context.Context) ([]loopRow, error) {
	if s.cfg.Client == nil {
		return nil, errNoClient
	}
	store, err := singleton.NewStore(s.cfg.Client.Database(s.cfg.Database))
	if err != nil {
		return nil, err
	}
	all, err := singleton.List(ctx, store)
	if err != nil {
		return nil, err
	}
	var rows []loopRow
	for _, status := range all[:min(len(all), maxLoops)] {
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
		rows = append(rows, row)
	}
	return rows, nil
}
