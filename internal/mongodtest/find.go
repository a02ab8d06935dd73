package mongodtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// A Program is a mongod that can be started.
type Program struct {
	Path    string
	Version string // "4.4.29"
	TLS     bool   // it was built with TLS
}

// The oldest version that is accepted.
const (
	leastMajor = 4
	leastMinor = 4
)

var versionLine = regexp.MustCompile(`db version v((\d+)\.(\d+)\S*)`)

// Find looks for a mongod: the one that the environment variable MONGOD names, else the one on
// PATH. The error is a reason for skipping a test, in words.
func Find(ctx context.Context) (Program, error) {
	path := os.Getenv("MONGOD")
	if path == "" {
		found, err := exec.LookPath("mongod")
		if err != nil {
			return Program{}, fmt.Errorf("no mongod: MONGOD is not set and PATH has none")
		}
		path = found
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return Program{}, fmt.Errorf("no mongod: %s --version: %w", path, err)
	}
	match := versionLine.FindSubmatch(text)
	if match == nil {
		return Program{}, fmt.Errorf("no mongod: %s --version does not name its version", path)
	}
	major, _ := strconv.Atoi(string(match[2])) // digits, by the expression
	minor, _ := strconv.Atoi(string(match[3]))
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return Program{}, fmt.Errorf("mongod %s is too old: %d.%d is needed", match[1],
			leastMajor, leastMinor)
	}
	return Program{Path: path, Version: string(match[1]), TLS: bytes.Contains(bytes.ToLower(text), []byte("openssl"))}, nil
}
