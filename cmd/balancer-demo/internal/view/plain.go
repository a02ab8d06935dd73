package view

import (
	"fmt"
	"strconv"
	"strings"

	"mongodlm/catalog"
)

// Plain is an event as one line for an output that is no terminal, without the newline:
//
//	12.3s #2 takeover: took the lock from #1 fence=42 evidence="ping 3.1s old"
//
// First the time since the begin, then who (the number of a balancer, or demo), the kind, what
// happened, and the facts as key=value. A value with anything but letters, digits and the signs
// of names in it is quoted.
func Plain(e Event) string {
	who := "demo"
	if e.Balancer > 0 {
		who = fmt.Sprintf("#%d", e.Balancer)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s: %s", Short(e.At), who, catalog.Printable(e.Kind, 20),
		catalog.Printable(e.Text, 300))
	for _, f := range e.Fields {
		fmt.Fprintf(&b, " %s=%s", catalog.Printable(f.Key, 40), value(f.Value))
	}
	return b.String()
}

// value quotes a text that could be taken for more than one field, and cuts it to 400 bytes.
func value(s string) string {
	bare := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("-_.:/+#", r)
	}) < 0
	if len(s) > 400 {
		s = s[:400] + "..."
	}
	if bare {
		return s
	}
	return strconv.Quote(s)
}
