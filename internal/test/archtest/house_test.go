package archtest_test

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// goList runs go list at the root, in the workspace.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	return strings.Fields(string(out))
}

// The imports of the house point one way.
func TestImports_PointOneWay(t *testing.T) {
	t.Parallel()
	const m = "mongodlm/"
	const demo = "cmd/balancer-demo/internal/"
	allowed := map[string][]string{
		"takeover":             {},
		"internal/clock":       {},
		"catalog":              {},
		"catalog/transition":   {"catalog"},
		"catalog/mongocatalog": {"catalog", "catalog/transition"},
		"catalog/memcatalog":   {"catalog", "catalog/transition", "internal/clock"},
		"pinger":               {"catalog", "internal/clock"},
		"internal/contend":     {"catalog", "catalog/transition", "takeover", "internal/clock"},                   // no queue, no guards
		"internal/waitqueue":   {"catalog", "catalog/transition", "pinger", "internal/clock", "internal/contend"}, // no managers
		"internal/history":     {"catalog", "internal/clock"},
		"internal/leading":     {},
		"distlock": {"catalog", "catalog/transition", "catalog/mongocatalog", "pinger", "takeover", "internal/clock",
			"internal/contend", "internal/leading", "internal/waitqueue"},
		"distlock/history":    {"catalog", "catalog/mongocatalog", "distlock", "internal/clock", "internal/history"},
		"election":            {"catalog", "distlock", "internal/clock", "internal/leading"},
		"internal/rows":       {"catalog"}, // no locks, no clocks
		"claim":               {"distlock", "internal/clock", "internal/rows"},
		"singleton":           {"catalog", "distlock", "internal/clock"},
		"adapters/gocron":     {"distlock", "singleton"},
		"adapters/prometheus": {"catalog", "distlock"},
		"adapters/otel":       {"distlock"},
		"cmd/internal/words":  {"catalog", "distlock", "election"},
		"cmd/internal/ui": {"catalog", "claim", "cmd/internal/words", "distlock",
			"distlock/history", "internal/clock", "singleton"},
		demo + "cluster": {"catalog"},
		demo + "referee": {demo + "cluster"},
	}
	for pkg, may := range allowed {
		for _, imported := range goList(t, "-f", `{{join .Imports "\n"}}`, "./"+pkg) {
			name, ours := strings.CutPrefix(imported, m)
			if ours && !slices.Contains(may, name) {
				t.Errorf("%s imports %s, which it must not", pkg, name)
			}
		}
	}
}

// Nothing that is shipped imports the tests, the simulation or the mistakes, nor what plays the
// lock.
func TestShipped_ImportsNothingOfTheTests(t *testing.T) {
	t.Parallel()
	ours := regexp.MustCompile(`^mongodlm/`)
	tests := regexp.MustCompile(`^(testing|mongodlm/(integration|study|internal/test))(/|$)`)
	for _, pkg := range goList(t, "-deps", "./distlock", "./election", "./singleton", "./claim", "./catalog/memcatalog", "./configserver",
		"./cmd/distlock", "./cmd/balancer-demo") {
		if !ours.MatchString(pkg) {
			continue
		}
		for _, imported := range goList(t, "-f", `{{join .Imports "\n"}}`, pkg) {
			if tests.MatchString(imported) {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

// The core brings three direct dependencies to whoever imports it: the driver, zerolog and uuid.
func TestCore_ThreeDirectDependencies(t *testing.T) {
	t.Parallel()
	ours := goList(t, "-deps", "-f", `{{if not .Standard}}{{.ImportPath}}{{end}}`, "./distlock", "./singleton")
	ok := regexp.MustCompile(`^(go\.mongodb\.org/mongo-driver/v2|github\.com/rs/zerolog|github\.com/google/uuid)(/|$)`)
	const m = "mongodlm/"
	for _, pkg := range ours {
		if !strings.HasPrefix(pkg, m) {
			continue
		}
		for _, imported := range goList(t, "-f", `{{join .Imports "\n"}}`, pkg) {
			first, _, _ := strings.Cut(imported, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(imported, m) && !ok.MatchString(imported) {
				t.Errorf("%s imports %s", pkg, imported)
			}
		}
	}
}

// What a program is traced with is its own choice: the spans need the API of OpenTelemetry only.
func TestSpans_NeedTheAPIOnly(t *testing.T) {
	t.Parallel()
	for _, pkg := range goList(t, "-deps", "./adapters/otel") {
		if strings.HasPrefix(pkg, "go.opentelemetry.io/otel/sdk") {
			t.Errorf("adapters/otel imports %s", pkg)
		}
	}
}

// sources calls visit for every Go file of the repository.
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
	if err != nil {
		t.Fatal(err)
	}
}

// The time of day is read in one place only; tests in virtual time may read it too.
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

// Every package says what it is; no file is longer than fits one room.
func TestPackages_AreDocumented_FilesFit(t *testing.T) {
	t.Parallel()
	for _, line := range goList(t, "-f", `{{if not .Doc}}{{.ImportPath}}{{end}}`, "work") {
		t.Errorf("package %s has no package comment", line)
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

// Every package that has tests looks for goroutines they left behind.
func TestPackages_LookForLeaks(t *testing.T) {
	t.Parallel()
	dirs, checked := map[string]bool{}, map[string]bool{}
	sources(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		dirs[filepath.Dir(path)] = true
		if bytes.Contains(text, []byte("goleak.")) {
			checked[filepath.Dir(path)] = true
		}
	})
	for dir := range dirs {
		if !checked[dir] && dir != "internal/test/archtest" {
			t.Errorf("%s has tests without goleak", dir)
		}
	}
}

// Every Go block of the README is part of an Example that runs, word for word; the README begins
// with commands, and it stays readable.
func TestReadme_ExampleIsTheTest(t *testing.T) {
	t.Parallel()
	const longest, firstCode = 250, 30
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(root, "configserver", "example_test.go"))
	if err != nil {
		t.Fatal(err)
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
		t.Errorf("README.md shows its first code in line %d, after line %d nobody looks for it", n, firstCode)
	}
}

func unindent(s string) string {
	var b strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(s)); lines.Scan(); {
		b.WriteString(strings.TrimSpace(lines.Text()) + "\n")
	}
	return b.String()
}
