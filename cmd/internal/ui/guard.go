package ui

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// policy allows scripts, styles, images, connections and forms of this server only. It forbids
// inline scripts, inline styles and frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

const maxForm = 16 << 10

// bodyTimeout is the longest time for reading the body of a request.
const bodyTimeout = 10 * time.Second

// cookieName names the cookie of a browser that has presented a token.
const cookieName = "distlock_ui"

// guarded checks the host, the origin and the token of each request, and sets the security headers.
// It passes accepted requests to the next handler. Static files need no token.
func (s *Server) guarded(next http.Handler) http.Handler {
	var same http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if r.ContentLength != 0 { // a stream has no body and needs no deadline
			// The error is ignored, because response writers of tests support no deadline.
			_ = http.NewResponseController(w).SetReadDeadline(s.clock.Now().Wall.Add(bodyTimeout))
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		_, known := s.authenticate(r)
		switch {
		case s.cfg.Loopback && !onLoopback(r.Host):
			http.Error(w, "This page accepts only localhost, 127.0.0.1 and [::1] as Host. A proxy in "+
				"front of it must send one of these.", http.StatusMisdirectedRequest)
		case same.Check(r) != nil, r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
			r.Header.Get("Sec-Fetch-Mode") != "navigate":
			http.Error(w, "The request came from another site. Nothing was done.", http.StatusForbidden)
		case known || strings.HasPrefix(r.URL.Path, "/static/"):
			next.ServeHTTP(w, r)
		case r.URL.Path == "/login" && r.Method == http.MethodPost:
			s.login(w, r)
		case r.Header.Get("Authorization") != "":
			s.wrongToken(w, r, loginPage)
		default:
			page := loginPage
			if r.Method == http.MethodGet {
				page.Address = r.URL.RequestURI()
			}
			s.write(w, http.StatusUnauthorized, "login", page)
		}
	})
}

// onLoopback reports whether the host of an address is the loopback of this machine. The address
// may lack a port.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

// sign returns a signature of the texts with the key of this Server.
func (s *Server) sign(texts ...string) string {
	mac := hmac.New(sha256.New, s.key)
	for _, text := range texts {
		mac.Write([]byte(strconv.Itoa(len(text)) + ":" + text))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// formLife is the lifetime of a page that requests a confirmation.
const formLife = 10 * time.Minute

// ticket returns a signed value for a form. The value confirms the action that is identified by the
// texts, and is valid for formLife.
func (s *Server) ticket(texts ...string) string {
	at := strconv.FormatInt(s.clock.Now().Wall.Unix(), 10)
	return at + "." + s.sign(append(texts, "ticket", at)...)
}

func (s *Server) validTicket(ticket string, texts ...string) bool {
	at, mac, _ := strings.Cut(ticket, ".")
	made, err := strconv.ParseInt(at, 10, 64)
	age := s.clock.Now().Wall.Sub(time.Unix(made, 0))
	return err == nil && equal(mac, s.sign(append(texts, "ticket", at)...)) && age < formLife &&
		age > -formLife
}

// minToken is the length of the shortest token in bytes.
const minToken = 16

// Tokens maps each accepted token to the name of its owner. The name of an owner may be empty.
type Tokens map[string]string

// ownToken matches a line of the token file with a name, a colon, a space and a token. The token
// may be missing.
var ownToken = regexp.MustCompile(`^([\w.@-]{1,64}):(?:\s+(.*))?$`)

// tokens reads the token file. The file contains a single token, or one line with an owner and a
// token for each user. Errors contain no token.
func (a Access) tokens() (Tokens, error) {
	if a.TokenFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(a.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	return parseTokens(strings.TrimSpace(string(text)))
}

func parseTokens(text string) (Tokens, error) {
	all, lines := Tokens{}, strings.Split(text, "\n")
	odd := func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) }
	for i, line := range lines {
		owner, token := "", strings.TrimSpace(line)
		if token == "" && len(lines) > 1 {
			continue
		}
		if of := ownToken.FindStringSubmatch(token); of != nil {
			owner, token = of[1], of[2]
		}
		problem := ""
		switch _, known := all[token]; {
		case owner == "" && len(lines) > 1:
			problem = "it must be a name, a colon, a space and a token"
		case known:
			problem = "the token occurs twice: its owner would be unknown"
		case len(token) < minToken:
			problem = fmt.Sprintf("the token has %d characters, at least %d are needed: openssl rand "+
				"-hex 16", len(token), minToken)
		case strings.ContainsFunc(token, odd):
			problem = "the token has characters that cannot be typed: openssl rand -hex 16"
		}
		if problem != "" {
			return nil, fmt.Errorf("--token-file, line %d: %s", i+1, problem)
		}
		all[token] = owner
	}
	return all, nil
}

// owner returns the owner of the token that the given function accepts. If it accepts no token,
// known is false.
func (s *Server) owner(of func(token string) bool) (owner string, known bool) {
	for token, name := range s.cfg.Tokens {
		if of(token) {
			owner, known = name, true
		}
	}
	return owner, known
}

// authenticate reports whether a request has an accepted token, or a cookie for an accepted token.
// It returns the owner of the token. If the page requires no token, authenticate accepts every
// request.
func (s *Server) authenticate(r *http.Request) (owner string, known bool) {
	if len(s.cfg.Tokens) == 0 {
		return "", true
	}
	if shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return s.owner(func(token string) bool { return equal(shown, token) })
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	return s.owner(func(token string) bool { return equal(cookie.Value, s.sign("cookie", token)) })
}

// loginPage is the page that requests a token. After the login, the browser gets the Address.
var loginPage = layout{view: view{Title: "Token"}, Address: "/"}

// login gives a browser a cookie in exchange for a token. The cookie is valid until the program
// ends.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	shown := r.PostFormValue("token")
	if _, known := s.owner(func(token string) bool { return equal(shown, token) }); !known {
		page := loginPage
		page.Address, page.Problem = r.PostFormValue("to"),
			"The file named by --token-file had no such token when the page was started."
		s.wrongToken(w, r, page)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.sign("cookie", shown), Path: "/",
		HttpOnly: true, Secure: s.cfg.Secure, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, local(r.PostFormValue("to")), http.StatusSeeOther)
}

// local returns the path and query of an address on this server. For any other address it returns
// "/", so that a login cannot redirect to another host.
func local(to string) string {
	if u, err := url.ParseRequestURI(to); err == nil && strings.HasPrefix(to, "/") &&
		!strings.HasPrefix(to, "//") && !strings.Contains(to, "\\") {
		return u.RequestURI()
	}
	return "/"
}

// Limits on attempts to guess a token. wrongPause delays the reply to a wrong token. While maxWrong
// replies are delayed, further wrong tokens are refused immediately.
const (
	wrongPause = time.Second
	maxWrong   = 8
)

// wrongToken logs the attempt, without the token, and replies after a pause.
func (s *Server) wrongToken(w http.ResponseWriter, r *http.Request, page layout) {
	s.cfg.Logger.Warn().Str("from", r.RemoteAddr).Msg("wrong token")
	select {
	case s.wrong <- struct{}{}:
		defer func() { <-s.wrong }()
	default:
		w.Header().Set("Retry-After", "2")
		http.Error(w, "Too many wrong tokens. Try again later.", http.StatusTooManyRequests)
		return
	}
	if clock.Sleep(s.clock, wrongPause, r.Context().Done()) {
		s.write(w, http.StatusUnauthorized, "login", page)
	}
}

// equal compares two strings in constant time.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// tokenOwner returns the owner of the request's token. It is empty without a token.
func (s *Server) tokenOwner(r *http.Request) string {
	owner, _ := s.authenticate(r)
	return owner
}

// breaker returns the Inspector that breaks locks in the name of the token's owner.
func (s *Server) breaker(r *http.Request) *distlock.Inspector {
	if owner := s.tokenOwner(r); owner != "" && s.cfg.InspectorOf != nil {
		return s.cfg.InspectorOf(owner)
	}
	return s.cfg.Inspector
}
