package integration_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
)

// D7, G11: New returns an error within the command timeout if the server cannot be reached. The
// error names the host and not the password.
func TestNew_UnreachableServer_SaysSoInTime(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // no other test gets this port
	begun := time.Now()
	_, err := distlock.New(t.Context(), distlock.Config{
		URI: "mongodb://someone:" + password + "@" + addr + "/", CommandTimeout: time.Second,
	})
	wantErr(t, err, distlock.ErrUnavailable)
	if took := time.Since(begun); took > 20*time.Second { // nominally one second
		t.Errorf("it took %v", took)
	}
	if !strings.Contains(err.Error(), addr) {
		t.Errorf("the error does not name %s: %v", addr, err)
	}
	wantNoSecret(t, err.Error())
}

// password is the secret of these tests, escaped for a connection string. plainPassword is not
// escaped.
const (
	password      = "n0b0dy%2Fmay%24see"
	plainPassword = "n0b0dy/may$see"
)

func wantNoSecret(t testing.TB, text string) {
	t.Helper()
	for _, secret := range []string{password, plainPassword, "n0b0dy"} {
		if strings.Contains(text, secret) {
			t.Errorf("the password is in %q", text)
		}
	}
}
