package ui

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
)

// The page caches the histories of a bounded number of locks.
func TestServer_Past_ManyLocks_FewAreCached(t *testing.T) {
	t.Parallel()
	s := New(t.Context(), Config{Past: func(context.Context, history.Query) ([]history.Entry,
		[]*distlock.MalformedError, error) {
		return nil, nil, nil
	}})
	defer s.Close()
	for i := range 1_000 {
		s.past(t.Context(), fmt.Sprint(i))
	}
	if n := len(s.histories); n > maxHistories {
		t.Errorf("%d histories are cached", n)
	}
}

// The style sheet has every color.
func TestColorOf_StyleSheet_HasEveryColor(t *testing.T) {
	t.Parallel()
	style := string(assert.Value(static.ReadFile("static/style.css"))(t))
	for i := range 1_000 {
		if class := fmt.Sprintf(".p%d", colorOf(fmt.Sprint("process ", i))); !strings.Contains(style, class+" ") &&
			!strings.Contains(style, class+"{") && !strings.Contains(style, class+",") {
			t.Fatalf("there is no %s", class)
		}
	}
}
