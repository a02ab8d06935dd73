package ui

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// Limits of a file of tokens.
const (
	minToken  = 16
	maxToken  = 4 << 10
	maxTokens = 100
)

// Tokens are the accepted tokens, each with the name of its owner, which may be empty.
type Tokens map[string]string

// ownToken matches a line of the file: a name, a colon, and, if the line has one, a space and the
// token.
var ownToken = regexp.MustCompile(`^([\w.@-]{1,64}):(?:\s+(.*))?$`)

// tokens reads the file of tokens. The file has one token, or one line for each token with its
// owner. Errors contain no token.
func (a Access) tokens() (Tokens, error) {
	if a.TokenFile == "" {
		return nil, nil
	}
	f, err := os.Open(a.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	defer func() { _ = f.Close() }() // the file was only read
	text, err := io.ReadAll(io.LimitReader(f, maxTokens*maxToken+1))
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	if len(text) > maxTokens*maxToken {
		return nil, fmt.Errorf("--token-file has more than %d bytes", maxTokens*maxToken)
	}
	return parseTokens(strings.TrimSpace(string(text)))
}

func parseTokens(text string) (Tokens, error) {
	first, _, _ := strings.Cut(text, "\n")
	if !ownToken.MatchString(first) { // a token without an owner
		return Tokens{text: ""}, checkToken("", text)
	}
	all := Tokens{}
	n := 0
	for line := range strings.Lines(text) {
		if n++; strings.TrimSpace(line) == "" {
			continue
		}
		of := ownToken.FindStringSubmatch(strings.TrimSpace(line))
		if of == nil {
			return nil, fmt.Errorf("--token-file, line %d: it must be a name, a colon, a space and a token",
				n)
		}
		token := strings.TrimSpace(of[2])
		if err := checkToken(fmt.Sprintf(", line %d,", n), token); err != nil {
			return nil, err
		}
		if _, is := all[token]; is {
			return nil, fmt.Errorf("--token-file, line %d: the token occurs twice: its owner "+
				"would be unknown", n)
		}
		all[token] = of[1]
	}
	if len(all) > maxTokens {
		return nil, fmt.Errorf("--token-file has %d tokens, at most %d are allowed", len(all), maxTokens)
	}
	return all, nil
}

// checkToken returns the problem with a token. The error names where, the line of the token.
func checkToken(where, token string) error {
	odd := func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) }
	switch {
	case len(token) > maxToken:
		return fmt.Errorf("--token-file%s has more than %d bytes", where, maxToken)
	case len(token) < minToken:
		return fmt.Errorf("--token-file%s holds %d characters, at least %d are needed: openssl "+
			"rand -hex 16", where, len(token), minToken)
	case strings.ContainsFunc(token, odd):
		return errors.New("--token-file" + where + " holds characters that cannot be typed: openssl " +
			"rand -hex 16")
	}
	return nil
}

// owner reports whether a token is accepted, and returns its owner.
func (s *Server) owner(of func(token string) bool) (who string, known bool) {
	for token, name := range s.cfg.Tokens {
		if of(token) {
			who, known = name, true
		}
	}
	return who, known
}

// visitor reports whether a request has a token or the cookie for a token. It returns the token's
// owner.
func (s *Server) visitor(r *http.Request) (who string, known bool) {
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

// login gives a browser that presents a token a cookie. The cookie is valid until the program ends.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	shown := r.PostFormValue("token")
	if _, known := s.owner(func(token string) bool { return equal(shown, token) }); !known {
		s.wrongToken(w, r, layout{Title: "Token", Path: r.PostFormValue("to"), Problem: "This is not a " +
			"token of the file that was named when the page was started."})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: s.sign("cookie", shown), Path: "/",
		HttpOnly: true, Secure: s.cfg.Secure, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, local(r.PostFormValue("to")), http.StatusSeeOther)
}

// local returns the path and query of a page of this server, and "/" for everything else.
func local(to string) string {
	if u, err := url.ParseRequestURI(to); err == nil && u.Host == "" && u.Scheme == "" &&
		strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.Contains(to, "\\") {
		return u.RequestURI()
	}
	return "/"
}

// Bounds of wrong tokens. The reply to each is delayed by wrongPause. At most maxWrong replies
// wait.
const (
	wrongPause = time.Second
	maxWrong   = 8
)

// wrongToken logs a wrong token, without the token, and replies after a pause.
func (s *Server) wrongToken(w http.ResponseWriter, r *http.Request, page layout) {
	s.cfg.Logger.Warn().Str("from", r.RemoteAddr).Msg("wrong token")
	select {
	case s.wrong <- struct{}{}:
		defer func() { <-s.wrong }()
	default:
		w.Header().Set("Retry-After", "2")
		s.refuse(w, http.StatusTooManyRequests, "Too many wrong tokens. Try again later.")
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

type visitorKey struct{}

// by returns ctx with the owner of the request's token.
func by(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, visitorKey{}, who)
}

// whose returns the owner of the request's token. It is empty without a token.
func whose(r *http.Request) string {
	who, _ := r.Context().Value(visitorKey{}).(string)
	return who
}

// breaker returns the Inspector that breaks locks in the name of the token's owner.
func (s *Server) breaker(r *http.Request) *distlock.Inspector {
	if who := whose(r); who != "" && s.cfg.InspectorOf != nil {
		return s.cfg.InspectorOf(who)
	}
	return s.cfg.Inspector
}
