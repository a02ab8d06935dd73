package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
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
	Namespace string
	Rows      []deadRow
	pager
	AllowChange   bool
	Ask           *confirmation
	Problem, Done string
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

func deadHref(namespace string) string {
	return "/dead?" + url.Values{"queue": {namespace}}.Encode()
}

// collection returns the collection of a namespace, which has the format DATABASE.COLLECTION.
func (s *Server) collection(namespace string) *mongo.Collection {
	database, collection, _ := strings.Cut(namespace, ".")
	return s.cfg.Client.Database(database).Collection(collection)
}

// serveDead lists the dead rows of a queue. For a submitted form, it first changes rows or asks the
// user to confirm the change. A request can reach only a collection to which the lock document of a
// queue belongs.
func (s *Server) serveDead(w http.ResponseWriter, r *http.Request) {
	p := deadPage{Namespace: r.URL.Query().Get("queue"), AllowChange: s.cfg.AllowBreak}
	now := s.locks.get(r.Context(), s, s.read)
	ofQueue := func(k *census.Lock) bool {
		namespace, _, is := words.Queue(k.Name)
		return is && namespace == p.Namespace
	}
	if s.cfg.Client == nil || now.value == nil || !slices.ContainsFunc(now.value.Locks, ofQueue) {
		http.Error(w, "There is no queue of that name: no worker has claimed rows there.",
			http.StatusNotFound)
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
	s.writeStatic(w, r, code, view{Title: "Dead rows of " + words.Named(p.Namespace), Name: "dead"}, p)
}

// doDead performs an action on dead rows if the form has a valid ticket. If the form has no ticket,
// doDead asks the user to confirm the action. The result is the status of the reply.
func (s *Server) doDead(r *http.Request, p *deadPage) int {
	act, ids, ticket := r.PostForm.Get("act"), r.PostForm["id"], r.PostForm.Get("ticket")
	if act == retryAll {
		ids = nil
	}
	texts := append([]string{"dead", p.Namespace, act}, ids...)
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
	admin, n, err := adminOf(s.collection(p.Namespace)), 0, error(nil)
	switch act {
	case retryAll:
		n, err = admin.RetryAll(ctx)
	case retryRows:
		n, err = admin.Retry(ctx, ids...)
	case discardRows:
		n, err = admin.Delete(ctx, claim.StateDead, ids...)
	}
	event := s.cfg.Logger.Warn()
	if err != nil { // the server may have changed rows
		event.Str("problem", s.problem(err))
	}
	event.Str("queue", catalog.Printable(p.Namespace, 200)).Str("act", act).
		Str("ids", catalog.Printable(strings.Join(r.PostForm["id"], " "), 1_000)).Int("rows", n).
		Str("from", r.RemoteAddr).Str("by", s.tokenOwner(r)).Msg("the page changed dead rows")
	rows := "The rows"
	if n > 0 {
		rows, p.Done = "The other rows", fmt.Sprintf("Done: %s, %s.", several(n, "row"), act)
	}
	switch {
	case err != nil:
		p.Problem = rows + " may or may not have changed: " + s.problem(err)
		return http.StatusBadGateway
	case n == 0:
		p.Problem = "The selected rows are no longer dead. Nothing was changed."
		return http.StatusConflict
	}
	return http.StatusOK
}

func adminOf(rows *mongo.Collection) *claim.Admin {
	admin, _ := claim.NewAdmin(rows, claim.Config{}) // a zero Config is valid
	return admin
}

func countDead(ctx context.Context, rows *mongo.Collection) (int64, error) {
	return rows.CountDocuments(ctx, bson.D{{Key: "claim.state", Value: string(claim.StateDead)}},
		options.Count().SetLimit(maxCounted))
}

func (s *Server) listDead(ctx context.Context, r *http.Request, p *deadPage) error {
	rows := s.collection(p.Namespace)
	total, err := countDead(ctx, rows)
	if err != nil {
		return err
	}
	p.pager = newPager(r, int(total), maxDead)
	if p.Ask != nil && p.Ask.Act == retryAll {
		p.Ask.N = p.Total
	}
	at := -1
	for row, err := range adminOf(rows).List(ctx, claim.StateDead) {
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

func (s *Server) readDead(ctx context.Context, queues []string) (sum int64, err error) {
	for _, namespace := range queues[:min(len(queues), maxQueues)] {
		n, err := countDead(ctx, s.collection(namespace))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// namespacesOf returns the collections of the queues that have a lock document.
func namespacesOf(locks []*census.Lock) (all []string) {
	for _, k := range locks {
		if namespace, _, is := words.Queue(k.Name); is {
			all = append(all, namespace)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
