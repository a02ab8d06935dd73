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

// A Program is an installed mongod.
type Program struct {
	Path    string
	Version string // "4.4.29"
	TLS     bool   // it was built with TLS
	Mongos  string // path of a mongos of the same version; only FindCluster sets it
}

// Find and FindCluster accept this version and later ones.
const (
	leastMajor = 4
	leastMinor = 4
)

var versionLine = regexp.MustCompile(`(?:db|mongos) version v((\d+)\.(\d+)\S*)`)

// Find returns the mongod that the environment variable MONGOD names. If MONGOD is not set, Find
// returns the mongod on PATH. It returns an error if there is no mongod or the version is too old.
// Tests may then be skipped.
func Find(ctx context.Context) (Program, error) { return find(ctx, "mongod", "MONGOD") }

// FindCluster is like Find, but also requires a mongos of the same version. The environment
// variable MONGOS names the mongos. If MONGOS is not set, FindCluster uses the mongos on PATH.
func FindCluster(ctx context.Context) (Program, error) {
	p, err := Find(ctx)
	if err != nil {
		return Program{}, err
	}
	s, err := find(ctx, "mongos", "MONGOS")
	if err == nil && s.Version != p.Version {
		err = fmt.Errorf("no mongos for mongod %s: %s is %s", p.Version, s.Path, s.Version)
	}
	p.Mongos = s.Path
	return p, err
}

func find(ctx context.Context, name, variable string) (Program, error) {
	path := os.Getenv(variable)
	if path == "" {
		found, err := exec.LookPath(name)
		if err != nil {
			return Program{}, fmt.Errorf("no %s: %s is not set and PATH has none", name, variable)
		}
		path = found
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return Program{}, fmt.Errorf("no %s: %s --version: %w", name, path, err)
	}
	match := versionLine.FindSubmatch(text)
	if match == nil {
		return Program{}, fmt.Errorf("no %s: %s --version does not name its version", name, path)
	}
	major, _ := strconv.Atoi(string(match[2])) // the expression matches digits only
	minor, _ := strconv.Atoi(string(match[3]))
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return Program{}, fmt.Errorf("%s %s is too old: %d.%d is needed", name, match[1],
			leastMajor, leastMinor)
	}
	tls := bytes.Contains(bytes.ToLower(text), []byte("openssl"))
	return Program{Path: path, Version: string(match[1]), TLS: tls}, nil
}
