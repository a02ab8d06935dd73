package ui

import (
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
	p.Problem = "The lock has changed: that holder no longer holds it. Nothing was changed."
	return p
}

// askBreak serves the first step of a break. It shows the holder and requests the confirmation.
func (s *Server) askBreak(w http.ResponseWriter, r *http.Request) {
	b, err := parseTarget(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := s.breakPageOf(r.Context(), b)
	code := http.StatusOK
	if p.Problem != "" {
		code = http.StatusConflict
	}
	s.writeBreak(w, r, code, p)
}

// doBreak serves the second step of a break. It breaks the lock.
func (s *Server) doBreak(w http.ResponseWriter, r *http.Request) {
	b, err := parseTarget(r.URL.Query()) // a form would change the line ends in a name
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.validTicket(r.PostForm.Get("ticket"), b.texts()...) {
		p := s.breakPageOf(r.Context(), b)
		if p.Problem == "" {
			p.Problem = "The form is not from this program, or is older than ten minutes. " +
				"Nothing was changed."
		}
		s.writeBreak(w, r, http.StatusForbidden, p)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), breakLimit)
	defer cancel()
	why := r.PostForm.Get("why")
	now, err := s.breaker(r).Break(ctx, b.name, b.fence, why, b.session)
	if err != nil {
		code, p := s.failed(ctx, b, why, err)
		s.writeBreak(w, r, code, p)
		return
	}
	s.cfg.Logger.Warn().Str("lock", catalog.Printable(b.name, 200)).Int64("fence", b.fence).
		Str("from", r.RemoteAddr).Str("by", tokenOwner(r)).Msg("the page broke a lock")
	s.writeBreak(w, r, http.StatusOK, breakResult(b, now))
}

func (s *Server) failed(ctx context.Context, b breakTarget, why string, err error) (int, breakPage) {
	switch {
	case errors.Is(err, distlock.ErrFenceMismatch):
		return http.StatusConflict, breakPage{Name: b.name,
			Problem: "The lock has changed: that holder no longer holds it. Nothing was changed."}
	case errors.Is(err, distlock.ErrOutcomeUnknown):
		return http.StatusBadGateway, breakPage{Name: b.name,
			Problem: "The lock may or may not be broken now. Check the lock again: " + s.problem(err)}
	}
	p := s.breakPageOf(ctx, b)
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

func (s *Server) writeBreak(w http.ResponseWriter, r *http.Request, code int, p breakPage) {
	s.writeStatic(w, r, code, view{title: "Break " + words.Named(p.Name), name: "break"}, p)
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
