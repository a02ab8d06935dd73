package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/claim"
	"mongodlm/cmd/internal/words"
)

// maxDead is how many dead rows a page shows.
const maxDead = 100

// A deadPage lists the dead rows of a queue.
type deadPage struct {
	Namespace     string
	Rows          []deadRow
	More          bool
	RetryAll      *deadForm
	Problem, Done string
}

// A deadRow is a dead row with its possible actions; nil where not allowed.
type deadRow struct {
	claim.Info
	ID             string
	Malformed      string
	Retry, Discard *deadForm
}

// A deadForm asks for one of the acts: where it is sent, and the ticket that it carries.
type deadForm struct{ Href, Ticket string }

// The actions on dead rows.
const (
	retryRow   = "retry"
	discardRow = "discard"
	retryAll   = "retry-all"
)

func deadHref(namespace string) string {
	return "/dead?" + url.Values{"queue": {namespace}}.Encode()
}

// form asks for an act about a row; nil when this page only shows.
func (s *Server) form(namespace, act, id string) *deadForm {
	if !s.cfg.AllowBreak {
		return nil
	}
	href := "/dead?" + url.Values{"queue": {namespace}, "act": {act}, "id": {id}}.Encode()
	return &deadForm{href, s.ticket("dead", namespace, act, id)}
}

// queueOf returns the collection of a queue that has a lock document; nil for any other collection:
// this page shows only queues.
func (s *Server) queueOf(r *http.Request) (namespace string, rows *mongo.Collection) {
	namespace = r.URL.Query().Get("queue")
	database, collection, ok := strings.Cut(namespace, ".")
	s.poller.fresh()
	now, _ := s.poller.now()
	if !ok || collection == "" || now.at.IsZero() || s.cfg.Client == nil {
		return namespace, nil
	}
	for _, k := range now.value.locks {
		if strings.HasPrefix(k.Name, "claim:"+namespace+":") {
			return namespace, s.cfg.Client.Database(database).Collection(collection)
		}
	}
	return namespace, nil
}

// noQueue is the message for a queue that queueOf does not find.
const noQueue = "There is no queue of that name: nobody has claimed rows there."

// showDead lists.
func (s *Server) showDead(w http.ResponseWriter, r *http.Request) {
	namespace, rows := s.queueOf(r)
	if rows == nil {
		s.refuse(w, http.StatusNotFound, noQueue)
		return
	}
	s.writeDead(w, r, http.StatusOK, rows, deadPage{Namespace: namespace})
}

// doDead carries out the action of a form: retries or discards.
func (s *Server) doDead(w http.ResponseWriter, r *http.Request) {
	if !s.cfg.AllowBreak {
		s.refuse(w, http.StatusForbidden, "This page was started without --allow-break: it only shows.")
		return
	}
	if err := r.ParseForm(); err != nil {
		s.refuse(w, http.StatusBadRequest, "The form cannot be read.")
		return
	}
	namespace, rows := s.queueOf(r)
	if rows == nil {
		s.refuse(w, http.StatusNotFound, noQueue)
		return
	}
	p := deadPage{Namespace: namespace}
	act, id := r.URL.Query().Get("act"), r.URL.Query().Get("id")
	if !s.good(r.PostForm.Get("ticket"), "dead", namespace, act, id) {
		p.Problem = "The question was not asked by this program, or more than ten minutes ago. Nothing " +
			"was changed."
		s.writeDead(w, r, http.StatusForbidden, rows, p)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	n, err := carryOut(ctx, rows, act, id)
	code := http.StatusOK
	switch {
	case err != nil:
		code, p.Problem = http.StatusBadGateway, "It may or may not be done: "+s.problem(err)
	case n == 0:
		code, p.Problem = http.StatusConflict, "It is not dead any more, or not there. Nothing "+
			"was changed."
	default:
		p.Done = fmt.Sprintf("Done: %d rows, %s.", n, act)
		s.cfg.Logger.Warn().Str("queue", catalog.Printable(namespace, 200)).Str("act", act).Str("row",
			catalog.Printable(id, 200)).
			Int("rows", n).Str("from", r.RemoteAddr).Str("by",
			whose(r)).Msg("dead rows were changed by the page")
	}
	s.writeDead(w, r, code, rows, p)
}

func carryOut(ctx context.Context, rows *mongo.Collection, act, id string) (int, error) {
	admin, err := claim.NewAdmin(rows, claim.Config{})
	if err != nil {
		return 0, err
	}
	if act == retryAll {
		return admin.RetryAll(ctx)
	}
	raw, err := words.ParseID(id)
	switch {
	case err != nil:
		return 0, err
	case act == discardRow:
		return admin.Delete(ctx, claim.StateDead, raw)
	}
	return admin.Retry(ctx, raw)
}

// writeDead shows the rows that are dead now.
func (s *Server) writeDead(w http.ResponseWriter, r *http.Request, code int, rows *mongo.Collection,
	p deadPage) {
	ctx, cancel := context.WithTimeout(r.Context(), cellLimit)
	defer cancel()
	admin, _ := claim.NewAdmin(rows, claim.Config{}) // a zero Config has no problems
	for row, err := range admin.List(ctx, claim.StateDead) {
		if err != nil && row.ID.IsZero() {
			p.Problem = strings.TrimSpace(p.Problem + " " + s.problem(err))
			break
		}
		if p.More = len(p.Rows) == maxDead; p.More {
			break
		}
		id := words.ID(row.ID)
		one := deadRow{Info: row, ID: id, Retry: s.form(p.Namespace, retryRow, id),
			Discard: s.form(p.Namespace, discardRow, id)}
		if err != nil {
			one.Malformed = s.problem(err)
		}
		p.Rows = append(p.Rows, one)
	}
	if len(p.Rows) > 0 {
		p.RetryAll = s.form(p.Namespace, retryAll, "")
	}
	now, _ := s.poller.now()
	l := s.layout(r, view{title: "Dead rows of " + words.Named(p.Namespace), name: "dead",
		show: func(*Server, *http.Request, *state) content { return content{Known: true, Data: p} }}, now)
	s.write(w, code, "static", l)
}
