package ui

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// policy allows only the contents that this server sends: no script or style in a page, no other
// host, no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

const maxForm = 16 << 10

// bodyTimeout bounds the time in which a browser sends the body.
const bodyTimeout = 10 * time.Second

// cookieName names the cookie of a browser that has presented the token.
const cookieName = "distlock_ui"

// guarded checks a request before the handler next runs.
func (s *Server) guarded(next http.Handler) http.Handler {
	same := http.NewCrossOriginProtection()
	same.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, http.StatusForbidden, "The request came from another site. Nothing was done.")
	}))
	inner := same.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // a stream has no body, and is read to its end
			// The response writers of tests support no deadline.
			_ = http.NewResponseController(w).SetReadDeadline(s.clock.Now().Wall.Add(bodyTimeout))
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		who, known := s.visitor(r)
		switch {
		case known || strings.HasPrefix(r.URL.Path, "/static/"):
			next.ServeHTTP(w, r.WithContext(by(r.Context(), who)))
		case r.URL.Path == "/login" && r.Method == http.MethodPost:
			s.login(w, r)
		case r.Header.Get("Authorization") != "":
			s.wrongToken(w, r, layout{Title: "Token"})
		default:
			asked := "/"
			if r.Method == http.MethodGet {
				asked = r.URL.RequestURI()
			}
			s.write(w, http.StatusUnauthorized, "login", layout{Title: "Token", Path: asked})
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case s.cfg.Loopback && !onLoopback(r.Host):
			s.refuse(w, http.StatusMisdirectedRequest, "This page answers to localhost, 127.0.0.1 and "+
				"[::1] only. A proxy before it must send one of these as Host.")
		case r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
			r.Header.Get("Sec-Fetch-Mode") != "navigate":
			s.refuse(w, http.StatusForbidden, "The request came from another site. Nothing was done.")
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

func (s *Server) refuse(w http.ResponseWriter, code int, text string) { http.Error(w, text, code) }

// onLoopback reports whether a Host header names the loopback of this machine.
func onLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// sign returns a signature that proves that this Server has made the texts.
func (s *Server) sign(texts ...string) string {
	mac := hmac.New(sha256.New, s.key)
	for _, text := range texts {
		mac.Write([]byte(strconv.Itoa(len(text)) + ":" + text))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// formLife is the lifetime of a page that requests a confirmation.
const formLife = 10 * time.Minute

// ticket returns the value that confirms these texts. It is valid for formLife.
func (s *Server) ticket(texts ...string) string {
	at := strconv.FormatInt(s.clock.Now().Wall.Unix(), 10)
	return at + "." + s.sign(append(texts, "ticket", at)...)
}

// good reports whether a ticket is valid for these texts.
func (s *Server) good(ticket string, texts ...string) bool {
	at, mac, _ := strings.Cut(ticket, ".")
	made, err := strconv.ParseInt(at, 10, 64)
	age := s.clock.Now().Wall.Sub(time.Unix(made, 0))
	return err == nil && equal(mac, s.sign(append(texts, "ticket", at)...)) && age < formLife &&
		age > -formLife
}
