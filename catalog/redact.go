package catalog

import (
	"regexp"
	"strings"
)

// Shown wraps an error of a server or a driver. Its text is fit for display: one line of bounded
// length, redacted by [Redact]. errors.As finds the wrapped error.
func Shown(err error) error { return shown{text: Printable(Redact(err.Error()), 600), cause: err} }

type shown struct {
	text  string
	cause error
}

func (e shown) Error() string { return e.text }
func (e shown) Unwrap() error { return e.cause }

var (
	userInfo   = regexp.MustCompile(`(mongodb(?:\+srv)?://)[^\s"']*@`)
	credential = regexp.MustCompile(
		`(?i)(\\?["']?(?:password|passwd|pwd|payload|saslpayload|client_secret|access_token)` +
			`\\?["']?\s*[:=]\s*)(?:\\?"[^"]*"|'[^']*'|\{[^}]*\}|[^\s,&}]+)`)
	// signed matches the fields that a driver adds to sign a command. A server's error may quote
	// the command.
	signed = regexp.MustCompile(`,?\s*\\?["']?(?:lsid|\$clusterTime|signature)\\?["']?\s*:\s*`)
)

// RedactUserInfo removes users and passwords from the connection strings in a text.
func RedactUserInfo(text string) string { return userInfo.ReplaceAllString(text, "${1}xxx@") }

// Redact removes from a server's or driver's text everything that may be a password, and the
// session and signature of a command. It also removes parts of names that look like a password,
// such as "pwd:x".
func Redact(text string) string {
	text = RedactUserInfo(text)
	text = credential.ReplaceAllString(text, "${1}xxx")
	for from := 0; ; {
		at := signed.FindStringIndex(text[from:])
		if at == nil {
			return text
		}
		from += at[0]
		rest := text[from+at[1]-at[0]:]
		text = text[:from] + rest[valueEnd(rest):]
	}
}

// valueEnd returns the end of the value at the start of a text: the offset after the closing brace,
// or before the next field. In a truncated text the value ends with the text.
func valueEnd(text string) int {
	depth := 0
	for i, r := range text {
		switch {
		case strings.ContainsRune("{[(", r):
			depth++
		case strings.ContainsRune("}])", r) && depth > 0:
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && strings.ContainsRune(",}", r):
			return i
		}
	}
	return len(text)
}
