package study_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/study/internal/study"
)

// asked asks for a page with knobs.
func asked(t *testing.T, address string, status int) string {
	t.Helper()
	out := httptest.NewRecorder()
	study.Desk().ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, address,
		nil))
	if out.Code != status {
		t.Errorf("%s: status %d, want %d: %.300s", address, out.Code, status, out.Body)
	}
	return out.Body.String()
}

// It tries to break the page with the knobs: it plays what the address says and shows the settings
// again, so that a link keeps them.
func TestDesk_PlaysWhatTheAddressSays(t *testing.T) {
	t.Parallel()
	page := asked(t, "/?case=pause&generation=1.8&A.pause=14m&B.clock=", http.StatusOK)
	for _, want := range []string{"Set otherwise: A.pause=14m.",
		"go run ./study pause --set A.pause=14m", `name="A.pause" value="14m" placeholder="20m@2m10s"`,
		`value="840000"`, `value="1.8" checked`, `<option value="pause" selected>`,
		"<b>1.8</b> one holder"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	assert.Equal(t, strings.Count(page, "<figure"), 1, "%d drawings, want %d")
	page = asked(t, "/?pause=1m&A.pause=2m@20m+3m@25m&generation=r2.0.1", http.StatusOK)
	for _, want := range []string{`name="A.pause" value="2m@20m 3m@25m 1m"`,
		`value="r2.0.1" checked`} { // in one field, and kept
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	page = asked(t, "/?generation=1.8&A.lost=finalize", http.StatusOK)
	if !strings.Contains(page, "Did not happen in 1.8: finalize reply lost of A.") ||
		!strings.Contains(page, "<b>1.8</b> TWO") {
		t.Errorf("what did not happen is not told: %.200s", page[strings.Index(page, "<section"):])
	}
}

// It tries to break the page by a wrong address: it says what is wrong, keeps what was typed, and
// lets no text of the address into the page as it is.
func TestDesk_WrongAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"/?case=paws":                      "most like it are",
		"/?A.pause=soon":                   `name="A.pause" value="soon"`,
		"/?A.paws=1m":                      "no knob &#34;A.paws&#34;",
		"/?generation=7":                   "no generation",
		"/?A.pause=%22%3E%3Cscript%3Ex":    "value=\"&#34;&gt;&lt;script&gt;x\"",
		"/?case=%3Cscript%3Ex":             "&lt;script&gt;x",
		"/?%3Cscript%3Ex=1m":               "&lt;script&gt;x",
		"/?A.lost=%3Cscript%3Ex":           "names no command",
		"/?takeover=1000h&generation=ours": "not within",
	} {
		page := asked(t, address, http.StatusBadRequest)
		if !strings.Contains(page, want) || strings.Contains(page, "<script>x") ||
			strings.Contains(page, "<figure") {
			t.Errorf("%s: %.3000s", address, page[strings.Index(page, "<main"):])
		}
	}
	asked(t, "/elsewhere", http.StatusNotFound)
}
