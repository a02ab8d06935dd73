package archtest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"mongodlm/internal/test/assert"
)

const root = "../../.."

// listed runs go list once. It returns the packages of the workspace and their dependencies, by
// path.
var listed = sync.OnceValues(func() (map[string]listing, error) {
	cmd := exec.Command("go", "list", "-deps", "-f",
		`{{.ImportPath}} {{ne .Doc ""}} {{join .Imports " "}}`, "work")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	all := map[string]listing{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		all[fields[0]] = listing{fields[1] == "true", fields[2:]}
	}
	return all, nil
})

type listing struct {
	documented bool
	imports    []string
}

func packages(t *testing.T) map[string]listing {
	t.Helper()
	return assert.Value(listed())(t)
}

func importsOf(t *testing.T, pkg string) []string {
	t.Helper()
	l, ok := packages(t)[ours+pkg]
	if !ok {
		t.Fatalf("there is no package %s", pkg)
	}
	return l.imports
}

// needs returns the given packages and all their dependencies.
func needs(t *testing.T, pkgs ...string) map[string]bool {
	t.Helper()
	of, all := packages(t), map[string]bool{}
	var add func(pkg string)
	add = func(pkg string) {
		if !all[pkg] {
			all[pkg] = true
			for _, next := range of[pkg].imports {
				add(next)
			}
		}
	}
	for _, pkg := range pkgs {
		add(ours + pkg)
	}
	return all
}

const ours = "mongodlm/"

// A package imports another package of this repository only if the table allows it.
func TestImports_PointOneWay(t *testing.T) {
	t.Parallel()
	const demo = "cmd/balancer-demo/internal/"
	allowed := map[string][]string{
		"takeover":             {},
		"internal/clock":       {},
		"catalog":              {},
		"catalog/transition":   {"catalog"},
		"catalog/mongocatalog": {"catalog", "catalog/transition", "internal/clock"},
		"catalog/memcatalog":   {"catalog", "catalog/transition", "internal/clock"},
		"pinger":               {"catalog", "catalog/transition", "internal/clock"},
		"internal/watch":       {"catalog", "catalog/transition", "pinger", "takeover", "internal/clock"},
		"internal/queue": {"catalog", "catalog/transition", "pinger", "internal/clock",
			"internal/watch"},
		"internal/leading": {},
		"internal/metrics": {"internal/clock"},
		"distlock": {"catalog", "catalog/transition", "catalog/mongocatalog", "pinger",
			"takeover", "internal/clock", "internal/watch", "internal/leading", "internal/metrics",
			"internal/queue"},
		"distlock/history": {"catalog", "distlock", "internal/clock"},
		"election": {"catalog", "distlock", "internal/clock", "internal/leading",
			"internal/metrics"},
		"internal/rows": {"catalog", "catalog/mongocatalog", "internal/clock"},
		"claim": {"distlock", "internal/clock", "internal/leading", "internal/metrics",
			"internal/rows"},
		"singleton": {"catalog", "distlock", "internal/clock", "internal/leading",
			"internal/metrics"},
		"adapters/gocron":      {"distlock", "internal/leading", "singleton"},
		"adapters/prometheus":  {"catalog", "distlock", "internal/metrics"},
		"adapters/otel":        {"distlock"},
		"cmd/internal/words":   {"catalog", "distlock", "distlock/history", "election"},
		"cmd/internal/outlook": {"cmd/internal/words", "distlock", "takeover"},
		"cmd/internal/census":  {"catalog", "claim", "cmd/internal/words", "distlock", "singleton"},
		"cmd/internal/ui": {"catalog", "claim", "cmd/internal/census", "cmd/internal/outlook",
			"cmd/internal/words", "distlock", "distlock/history", "internal/clock", "singleton"},
		"cmd/internal/scrape": {"configserver"},
		"configserver":        {"internal/clock"},
		"internal/role":       {},
		demo + "balancer": {"catalog", "distlock", "internal/clock", "singleton",
			demo + "cluster"},
		demo + "cluster": {"catalog"},
		demo + "referee": {demo + "cluster"},
	}
	programs := regexp.MustCompile(`^(cmd/[^/]+|study.*|internal/test/.+|deploy|docs.*|integration)$`)
	for pkg := range packages(t) {
		pkg, ours := strings.CutPrefix(pkg, ours)
		if _, listed := allowed[pkg]; ours && !listed && !programs.MatchString(pkg) {
			t.Errorf("%s is neither in the table nor a program nor a test", pkg)
		}
	}
	for pkg, may := range allowed {
		for _, imported := range importsOf(t, pkg) {
			name, ours := strings.CutPrefix(imported, ours)
			if ours && !slices.Contains(may, name) {
				t.Errorf("%s imports %s, which it must not", pkg, name)
			}
		}
	}
}

// Shipped packages do not import package testing, test packages, or packages in the folder study.
func TestShipped_ImportsNothingOfTheTests(t *testing.T) {
	t.Parallel()
	tests := regexp.MustCompile(`^(testing|mongodlm/(integration|study|internal/test))(/|$)`)
	for pkg := range needs(t, "distlock", "election", "singleton", "claim", "catalog/memcatalog",
		"configserver", "cmd/distlock", "cmd/balancer-demo") {
		name, isOurs := strings.CutPrefix(pkg, ours)
		if !isOurs {
			continue
		}
		for _, imported := range importsOf(t, name) {
			if tests.MatchString(imported) {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

// The core depends directly on three modules: the driver, zerolog and uuid.
func TestCore_ThreeDirectDependencies(t *testing.T) {
	t.Parallel()
	ok := regexp.MustCompile(`^(go\.mongodb\.org/mongo-driver/v2|` +
		`github\.com/(rs/zerolog|google/uuid))(/|$)`)
	for pkg := range needs(t, "distlock", "singleton") {
		name, isOurs := strings.CutPrefix(pkg, ours)
		if !isOurs {
			continue
		}
		for _, imported := range importsOf(t, name) {
			first, _, _ := strings.Cut(imported, "/")
			if strings.Contains(first, ".") && !ok.MatchString(imported) {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

// Package adapters/otel does not depend on the SDK of OpenTelemetry, so that each program can
// choose its own SDK.
func TestSpans_NeedTheAPIOnly(t *testing.T) {
	t.Parallel()
	for pkg := range needs(t, "adapters/otel") {
		if strings.HasPrefix(pkg, "go.opentelemetry.io/otel/sdk") {
			t.Errorf("adapters/otel imports %s", pkg)
		}
	}
}

func sources(t *testing.T, visit func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		visit(filepath.ToSlash(name), text)
		return err
	})
	assert.Must(t, err)
}

// Only package internal/clock and tests read the time of day or sleep.
func TestClock_ReadInOnePlace(t *testing.T) {
	t.Parallel()
	now := regexp.MustCompile(`\btime\.(Now|Since|Until)\(`)
	sleep := regexp.MustCompile(`\btime\.Sleep\(`)
	sources(t, func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/clock/") {
			return
		}
		for n, line := range bytes.Split(text, []byte("\n")) {
			if code, _, _ := bytes.Cut(line, []byte("//")); now.Match(code) || sleep.Match(code) {
				t.Errorf("%s:%d reads the clock or sleeps: %s", path, n+1, bytes.TrimSpace(line))
			}
		}
	})
}

// These packages get their random numbers from the injected clock and do not import math/rand, so
// that the seed alone determines a random walk.
func TestClock_BringsTheChance(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"pinger", "internal/watch", "internal/queue", "internal/rows",
		"election", "singleton", "claim"} {
		for _, path := range importsOf(t, pkg) {
			if strings.HasPrefix(path, "math/rand") {
				t.Errorf("%s imports %s", pkg, path)
			}
		}
	}
}

// Each package has a package comment, and no file is too long.
func TestPackages_AreDocumented_FilesFit(t *testing.T) {
	t.Parallel()
	for pkg, l := range packages(t) {
		if strings.HasPrefix(pkg, ours) && !l.documented {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
	sources(t, func(path string, text []byte) {
		limit := 500
		if strings.HasSuffix(path, "_test.go") {
			limit = 800
		}
		if n := bytes.Count(text, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines, at most %d fit", path, n, limit)
		}
	})
}

// The tests of each package check for leaked goroutines. Only this package is exempt.
func TestPackages_LookForLeaks(t *testing.T) {
	t.Parallel()
	dirs, checked := map[string]bool{}, map[string]bool{}
	sources(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		dirs[filepath.Dir(path)] = true
		if bytes.Contains(text, []byte("effort.Main(")) || bytes.Contains(text, []byte("goleak.")) {
			checked[filepath.Dir(path)] = true
		}
	})
	for dir := range dirs {
		if !checked[dir] && dir != "internal/test/archtest" {
			t.Errorf("%s has tests without effort.Main, which looks for them", dir)
		}
	}
}

// README.md is short and shows code early. All its Go code is part of an Example that runs.
func TestReadme_ExampleIsTheTest(t *testing.T) {
	t.Parallel()
	const longest, firstCode = 250, 30
	readme := assert.Value(os.ReadFile(filepath.Join(root, "README.md")))(t)
	files := assert.Value(filepath.Glob(filepath.Join(root, "configserver", "example*_test.go")))(t)
	var example []byte
	for _, file := range files {
		text := assert.Value(os.ReadFile(file))(t)
		example = append(example, text...)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) == 0 {
		t.Error("README.md shows no Go code")
	}
	for _, block := range blocks {
		if !strings.Contains(unindent(string(example)), unindent(block[1])) {
			t.Errorf("README.md shows what no Example of configserver does word for word:\n%s", block[1])
		}
	}
	if n := bytes.Count(readme, []byte("\n")); n > longest {
		t.Errorf("README.md has %d lines, at most %d are read", n, longest)
	}
	before, _, _ := bytes.Cut(readme, []byte("\n```"))
	if n := bytes.Count(before, []byte("\n")) + 2; n > firstCode {
		t.Errorf("README.md shows its first code in line %d, after line %d nobody looks for it", n,
			firstCode)
	}
}

func unindent(s string) string {
	var b strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(s)); lines.Scan(); {
		b.WriteString(strings.TrimSpace(lines.Text()) + "\n")
	}
	return b.String()
}
