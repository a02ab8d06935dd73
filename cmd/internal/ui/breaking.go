package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// breakLimit is the time limit of the commands that break a lock. They continue even if the browser
// disconnects.
const breakLimit = 10 * time.Second

const (
	staleForm = "The form is not from this program, or is older than ten minutes. " +
		"Nothing was changed."
	lockChanged = "The lock has changed: that holder no longer holds it. Nothing was changed."
)

// A breakPage asks the user to confirm that a lock is broken, or shows the result.
type breakPage struct {
	Name    string
	Target  distlock.LockInfo
	Next    *distlock.LockInfo
	Gone    string // the warning about a dead next waiter
	Why     string
	Ticket  string
	Problem string // the reason why the break failed or cannot be done
	Done    string // the result
	Granted []distlock.LockInfo
}

func breakHref(h distlock.LockInfo) string {
	return "/break?" + url.Values{"name": {h.Name}, "session": {h.Session.Hex()},
		"fence": {strconv.FormatInt(h.Fence, 10)}}.Encode()
}

type breakTarget struct {
	name    string
	fence   int64
	session bson.ObjectID
}

func parseTarget(form url.Values) (b breakTarget, err error) {
	b.name = form.Get("name")
	if b.fence, err = strconv.ParseInt(form.Get("fence"), 10, 64); err != nil {
		return b, errors.New("the fence is missing or is not a number")
	}
	if b.session, err = bson.ObjectIDFromHex(form.Get("session")); err != nil {
		return b, errors.New("the session is missing or invalid")
	}
	return b, nil
}

// texts returns the strings that identify the break in a signed ticket.
func (b breakTarget) texts() []string {
	return []string{"break", b.name, strconv.FormatInt(b.fence, 10), b.session.Hex()}
}

// breakPageOf returns a page that shows the holder, or the reason why a break is not possible.
func (s *Server) breakPageOf(ctx context.Context, b breakTarget) breakPage {
	p := breakPage{Name: b.name}
	holders, queue, err := s.cfg.Inspector.Holder(ctx, b.name)
	if err != nil {
		p.Problem = s.problem(err)
		return p
	}
	for _, h := range holders {
		if h.Held && h.Session == b.session && h.Fence == b.fence {
			p.Target = h
			if len(queue) > 0 {
				p.Next = &queue[0]
			}
			p.Gone = words.NextIsGone(queue)
			p.Ticket = s.ticket(b.texts()...)
			return p
		}
	}
	p.Problem = lockChanged
	return p
}

// serveBreak serves the two steps of a break. The first step shows the holder and requests the
// confirmation. The second step, which submits a form, breaks the lock.
func (s *Server) serveBreak(w http.ResponseWriter, r *http.Request) {
	b, err := parseTarget(r.URL.Query()) // a form would change the line ends in a name
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var code int
	var p breakPage
	if r.Method == http.MethodPost {
		code, p = s.doBreak(r, b)
	} else if code, p = http.StatusOK, s.breakPageOf(r.Context(), b); p.Problem != "" {
		code = http.StatusConflict
	}
	s.writeStatic(w, r, code, view{title: "Break " + words.Named(p.Name), name: "break"}, p)
}

func (s *Server) doBreak(r *http.Request, b breakTarget) (code int, p breakPage) {
	if !s.validTicket(r.PostForm.Get("ticket"), b.texts()...) {
		p = s.breakPageOf(r.Context(), b)
		p.Problem = cmp.Or(p.Problem, staleForm)
		return http.StatusForbidden, p
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	why := r.PostForm.Get("why")
	now, err := s.breaker(r).Break(ctx, b.name, b.fence, why, b.session)
	if err != nil {
		return s.failed(ctx, b, why, err)
	}
	s.cfg.Logger.Warn().Str("lock", catalog.Printable(b.name, 200)).Int64("fence", b.fence).
		Str("from", r.RemoteAddr).Str("by", s.tokenOwner(r)).Msg("the page broke a lock")
	return http.StatusOK, breakResult(b, now)
}

func (s *Server) failed(ctx context.Context, b breakTarget, why string, err error) (
	code int, p breakPage) {
	switch {
	case errors.Is(err, distlock.ErrFenceMismatch):
		return http.StatusConflict, breakPage{Name: b.name, Problem: lockChanged}
	case errors.Is(err, distlock.ErrOutcomeUnknown):
		return http.StatusBadGateway, breakPage{Name: b.name,
			Problem: "The lock may or may not be broken now. Check the lock again: " + s.problem(err)}
	}
	p = s.breakPageOf(ctx, b)
	p.Why = why
	p.Problem = "Nothing was changed: " + s.problem(err)
	if errors.Is(err, distlock.ErrBadOption) {
		return http.StatusBadRequest, p
	}
	return http.StatusBadGateway, p
}

func breakResult(b breakTarget, now []distlock.LockInfo) breakPage {
	p := breakPage{Name: b.name}
	switch {
	case len(now) == 0:
		p.Done = "That holder no longer holds the lock. Other holders remain."
	case !now[0].Held:
		p.Done = "The lock is free now."
		if now[0].Fence > 0 {
			p.Done = fmt.Sprintf("The lock is free now, fence %d.", now[0].Fence)
		}
	default:
		p.Done, p.Granted = "The lock was granted to the next waiter.", now
	}
	return p
}

func (s *Server) writeStatic(w http.ResponseWriter, r *http.Request, code int, v view, data any) {
	v.show = func(*Server, *http.Request, state) content { return content{Known: true, Data: data} }
	s.write(w, code, "static", s.layout(r, v, state{}))
}

// allowChanges refuses a request if the page is read-only. Otherwise it parses the form and calls
// the next handler.
func (s *Server) allowChanges(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.cfg.AllowBreak {
			http.Error(w, "This page was started without --allow-break: it is read-only.",
				http.StatusForbidden)
			return
		}
		if err := r.ParseForm(); err != nil {
			http.Error(w, "The form cannot be read.", http.StatusBadRequest)
			return
		}
		next(w, r)
	}
}
