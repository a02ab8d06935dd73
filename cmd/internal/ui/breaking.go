package ui

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
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

const staleForm = "The form is not from this program, or is older than ten minutes. " +
	"Nothing was changed."

// A breakPage asks the user to confirm that a lock is broken, or shows the result.
type breakPage struct {
	Name    string
	Target  distlock.LockInfo
	Next    *distlock.LockInfo
	Why     string
	Ticket  string
	Problem string // the reason why the break failed or cannot be done
	Done    string // the result
	Granted []distlock.LockInfo
}

// breakHref returns the address of the form that breaks the lock of a holder. A ticket for the form
// signs this address.
func breakHref(h distlock.LockInfo) string {
	return "/break?" + url.Values{"name": {h.Name}, "session": {h.Session.Hex()},
		"fence": {strconv.FormatInt(h.Fence, 10)}}.Encode()
}

// parseTarget is the inverse of breakHref.
func parseTarget(form url.Values) (h distlock.LockInfo, err error) {
	h.Name = form.Get("name")
	if h.Fence, err = strconv.ParseInt(form.Get("fence"), 10, 64); err != nil {
		return h, errors.New("the fence is missing or is not a number")
	}
	if h.Session, err = bson.ObjectIDFromHex(form.Get("session")); err != nil {
		return h, errors.New("the session is missing or invalid")
	}
	return h, nil
}

// breakPageOf returns a page that shows the holder, or the reason why a break is not possible.
func (s *Server) breakPageOf(ctx context.Context, of distlock.LockInfo) breakPage {
	p := breakPage{Name: of.Name}
	holders, queue, err := s.cfg.Inspector.Holder(ctx, of.Name)
	if err != nil {
		p.Problem = s.problem(err)
		return p
	}
	at := slices.IndexFunc(holders, func(h distlock.LockInfo) bool {
		return h.Held && h.Session == of.Session && h.Fence == of.Fence
	})
	if at < 0 {
		p.Problem = "The lock has changed: that holder no longer holds it. Nothing was changed."
		return p
	}
	p.Target, p.Ticket = holders[at], s.ticket(breakHref(of))
	if len(queue) > 0 {
		p.Next = &queue[0]
	}
	return p
}

// serveBreak serves the two steps of a break. The first step shows the holder and requests the
// confirmation. The second step, which submits a form, breaks the lock.
func (s *Server) serveBreak(w http.ResponseWriter, r *http.Request) {
	of, err := parseTarget(r.URL.Query()) // a form would change the line ends in a name
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var code int
	var p breakPage
	if r.Method == http.MethodPost {
		code, p = s.doBreak(r, of)
	} else if code, p = http.StatusOK, s.breakPageOf(r.Context(), of); p.Problem != "" {
		code = http.StatusConflict
	}
	s.writeStatic(w, r, code, view{Title: "Break " + words.Named(p.Name), Name: "break"}, p)
}

func (s *Server) doBreak(r *http.Request, of distlock.LockInfo) (code int, p breakPage) {
	if !s.validTicket(r.PostForm.Get("ticket"), breakHref(of)) {
		p = s.breakPageOf(r.Context(), of)
		p.Problem = cmp.Or(p.Problem, staleForm)
		return http.StatusForbidden, p
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	why := r.PostForm.Get("why")
	now, err := s.breaker(r).Break(ctx, of.Name, of.Fence, why, of.Session)
	if err != nil {
		return s.notBroken(ctx, of, why, err)
	}
	s.cfg.Logger.Warn().Str("lock", catalog.Printable(of.Name, 200)).Int64("fence", of.Fence).
		Str("from", r.RemoteAddr).Str("by", s.tokenOwner(r)).Msg("the page broke a lock")
	return http.StatusOK, breakPage{Name: of.Name, Done: words.AfterBreak(now), Granted: now}
}

// notBroken returns the page for a break that has failed.
func (s *Server) notBroken(ctx context.Context, of distlock.LockInfo, why string, err error) (
	code int, p breakPage) {
	if errors.Is(err, distlock.ErrOutcomeUnknown) {
		return http.StatusBadGateway, breakPage{Name: of.Name,
			Problem: "The lock may or may not be broken now. Check the lock again: " + s.problem(err)}
	}
	p = s.breakPageOf(ctx, of)
	p.Why, p.Problem = why, "Nothing was changed: "+s.problem(err)
	switch {
	case errors.Is(err, distlock.ErrFenceMismatch):
		return http.StatusConflict, p
	case errors.Is(err, distlock.ErrBadOption):
		return http.StatusBadRequest, p
	}
	return http.StatusBadGateway, p
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
