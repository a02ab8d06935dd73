package catalog

import (
	"regexp"
	"strings"
)

// Shown wraps an error of a server or a driver for display. Its text is one line of at most 600
// characters, redacted by [Redact]. errors.As finds the original error.
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
	// signed matches the session and signature fields that a driver adds to a command. The server may
	// quote the command in an error.
	signed = regexp.MustCompile(`,?\s*\\?["']?(?:lsid|\$clusterTime|signature)\\?["']?\s*:\s*`)
)

// RedactUserInfo removes users and passwords from the connection strings in a text.
func RedactUserInfo(text string) string { return userInfo.ReplaceAllString(text, "${1}xxx@") }

// Redact removes passwords, sessions and signatures from the text of a server or a driver. It also
// removes harmless text that looks like a password, such as a lock named "pwd:x".
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

// valueEnd returns the length of the value at the start of a text. The value ends after its closing
// brace, before the next field, or at the end of the text.
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
