package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
)

// maxDead is the largest number of dead rows on a page. The server counts at most maxCounted dead
// rows of a queue. A dead row is a failed row that package claim does not retry by itself.
const (
	maxDead    = 100
	maxCounted = 100_000
)

// keepDead is the shortest pause between two counts of the dead rows. A round waits for the count,
// so deadLimit bounds the count.
const (
	keepDead  = 15 * time.Second
	deadLimit = 3 * time.Second
)

type deadPage struct {
	Queue *census.Queue
	Rows  []deadRow
	pager
	AllowChange   bool
	Ask           *confirmation
	Problem, Done string

	admin *claim.Admin
}

type deadRow struct {
	claim.Info
	ID        string
	Malformed string
}

// A confirmation asks the user to confirm an action. The action applies to the rows in IDs. If IDs
// is empty, it applies to all N dead rows.
type confirmation struct {
	Act    string
	IDs    []string
	N      int
	Ticket string
}

const (
	retryRows   = "retry"
	discardRows = "discard"
	retryAll    = "retry-all"
)

func deadHref(q *census.Queue) string {
	query := url.Values{"queue": {q.Namespace}}
	if q.Config.Field != words.DefaultField {
		query.Set("field", q.Config.Field)
	}
	return "/dead?" + query.Encode()
}

// serveDead lists the dead rows of a queue. For a submitted form, it first changes rows or asks the
// user to confirm the change. A request can reach only a collection to which the lock document of a
// queue belongs.
func (s *Server) serveDead(w http.ResponseWriter, r *http.Request) {
	now, query := s.locks.get(r.Context(), s, s.read), r.URL.Query()
	p := deadPage{AllowChange: s.cfg.AllowBreak}
	if now.value != nil {
		for _, q := range now.value.Queues() {
			if q.Namespace == query.Get("queue") &&
				q.Config.Field == cmp.Or(query.Get("field"), words.DefaultField) {
				p.Queue = q
			}
		}
	}
	if p.Queue == nil {
		http.Error(w, "There is no queue of that name: no worker has claimed rows there.",
			http.StatusNotFound)
		return
	}
	var err error
	if p.admin, err = claim.NewAdmin(p.Queue.Collection(s.cfg.Client), p.Queue.Config); err != nil {
		http.Error(w, s.problem(err), http.StatusConflict)
		return
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = s.doDead(r, &p)
	}
	ctx, cancel := context.WithTimeout(r.Context(), cellLimit)
	defer cancel()
	if err := s.listDead(ctx, r, &p); err != nil {
		p.Problem = strings.TrimSpace(p.Problem + " " + s.problem(err))
	}
	title := "Dead rows of " + words.Named(p.Queue.Namespace)
	s.writeStatic(w, r, code, view{Title: title, Name: "dead"}, p)
}

// doDead performs an action on dead rows if the form has a valid ticket. If the form has no ticket,
// doDead asks the user to confirm the action. The result is the status of the reply.
func (s *Server) doDead(r *http.Request, p *deadPage) int {
	act, ids, ticket := r.PostForm.Get("act"), r.PostForm["id"], r.PostForm.Get("ticket")
	if act == retryAll {
		ids = nil
	}
	texts := append([]string{deadHref(p.Queue), act}, ids...)
	raws, err := words.ParseIDs(ids)
	switch {
	case err != nil:
		p.Problem = "Invalid _id: " + err.Error() + ". Nothing was changed."
		return http.StatusBadRequest
	case act != retryAll && (act != retryRows && act != discardRows || len(ids) == 0):
		p.Problem = "No row is selected. Nothing was changed."
		return http.StatusBadRequest
	case ticket == "":
		p.Ask = &confirmation{Act: act, IDs: ids, N: len(ids), Ticket: s.ticket(texts...)}
		return http.StatusOK
	case !s.validTicket(ticket, texts...):
		p.Problem = staleForm
		return http.StatusForbidden
	}
	return s.changeDead(r, act, raws, p)
}

func (s *Server) changeDead(r *http.Request, act string, ids []any, p *deadPage) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	var n int
	var err error
	switch act {
	case retryAll:
		n, err = p.admin.RetryAll(ctx)
	case retryRows:
		n, err = p.admin.Retry(ctx, ids...)
	case discardRows:
		n, err = p.admin.Delete(ctx, claim.StateDead, ids...)
	}
	event := s.cfg.Logger.Warn()
	if err != nil { // the server may have changed rows
		event.Str("problem", s.problem(err))
	}
	event.Str("queue", catalog.Printable(p.Queue.Namespace, 200)).Str("act", act).
		Str("ids", catalog.Printable(strings.Join(r.PostForm["id"], " "), 1_000)).Int("rows", n).
		Str("from", r.RemoteAddr).Str("by", s.tokenOwner(r)).Msg("the page changed dead rows")
	if n > 0 {
		p.Done = fmt.Sprintf("Done: %s, %s.", several(n, "row"), act)
	}
	switch {
	case err != nil:
		p.Problem = "Further rows may or may not have changed: " + s.problem(err)
		return http.StatusBadGateway
	case n == 0:
		p.Problem = "The selected rows are no longer dead. Nothing was changed."
		return http.StatusConflict
	}
	return http.StatusOK
}

func (s *Server) countDead(ctx context.Context, q *census.Queue) (int64, error) {
	dead := bson.D{{Key: q.Config.Field + ".state", Value: string(claim.StateDead)}}
	return q.Collection(s.cfg.Client).CountDocuments(ctx, dead, options.Count().SetLimit(maxCounted))
}

func (s *Server) listDead(ctx context.Context, r *http.Request, p *deadPage) error {
	total, err := s.countDead(ctx, p.Queue)
	if err != nil {
		return err
	}
	p.pager = newPager(r, int(total), maxDead)
	if p.Ask != nil && p.Ask.Act == retryAll {
		p.Ask.N = p.Total
	}
	at := -1
	for row, err := range p.admin.List(ctx, claim.StateDead) {
		if err != nil && row.ID.IsZero() {
			return err
		}
		switch at++; {
		case at < p.First:
			continue
		case at >= p.Last:
			return nil
		}
		one := deadRow{Info: row, ID: words.ID(row.ID)}
		if err != nil {
			one.Malformed = s.problem(err)
		}
		p.Rows = append(p.Rows, one)
	}
	return nil
}

func (s *Server) readDead(ctx context.Context, queues []*census.Queue) (sum int64, err error) {
	for _, q := range queues[:min(len(queues), maxQueues)] {
		n, err := s.countDead(ctx, q)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
