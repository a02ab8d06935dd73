package mutant_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/mutant"
)

const root = "../../.."

// mistakeEnv is the environment variable that selects a mistake by its name.
const mistakeEnv = "MONGODLM_MISTAKE"

var every = flag.Int("mutant.every", 18, "of the mistakes make every n-th, 1 for all")

func TestMain(m *testing.M) { effort.Main(m) }

// Each mistake replaces a string that occurs once in its file, in the body of a function, and names
// an existing test. With -v the test lists the mistakes.
func TestMistakes_CanBeMade(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for i, m := range mutant.All() {
		t.Logf("%d  %s: %s %s (%s)", i+1, m.Name, m.Package, m.Test, m.Rule)
		if m.Name == "" || names[m.Name] {
			t.Errorf("%q: the name is empty or used twice", m.Name)
		}
		names[m.Name] = true
		testExists(t, m)
	}
	switched(t, mutant.All())
}

func testExists(t *testing.T, m mutant.Mistake) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(m.Package), "*_test.go"))
	assert.Must(t, err)
	for _, file := range files {
		text := assert.Value(os.ReadFile(file))(t)
		if strings.Contains(string(text), "\nfunc "+m.Test+"(t *testing.T)") {
			return
		}
	}
	t.Errorf("%q: no test %s in %s", m.Name, m.Test, m.Package)
}

// When a mistake is made, its test fails.
func TestMistakes_AreNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: it compiles and links the packages")
	}
	var made []mutant.Mistake
	of := map[string][]mutant.Mistake{} // by package
	for i, m := range mutant.All() {
		if (i+1)%*every == 0 {
			made = append(made, m)
			of[m.Package] = append(of[m.Package], m)
		}
	}
	dir := t.TempDir()
	args := []string{"test", "-c", "-overlay", overlay(t, dir, made), "-ldflags=-s -w",
		"-o", dir + string(filepath.Separator)}
	for pkg := range of {
		args = append(args, "mongodlm/"+pkg)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	for pkg, mistakes := range of {
		binary := filepath.Join(dir, path.Base(pkg)+".test")
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			for _, m := range mistakes {
				t.Run(m.Name, func(t *testing.T) { fails(t, m, binary) })
			}
		})
	}
	t.Logf("%d of %d in %d programs, all with -mutant.every=1", len(made), len(mutant.All()), len(of))
}

// overlay writes the files with the mistakes into a folder, and returns the file for the option
// -overlay.
func overlay(t *testing.T, dir string, mistakes []mutant.Mistake) string {
	t.Helper()
	replace := map[string]string{}
	for file, text := range switched(t, mistakes) {
		at := assert.Value(filepath.Abs(filepath.Join(root, filepath.FromSlash(file))))(t)
		replace[at] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		assert.Must(t, os.WriteFile(replace[at], []byte(text), 0o600))
	}
	text := assert.Value(json.Marshal(map[string]any{"Replace": replace}))(t)
	list := filepath.Join(dir, "overlay.json")
	assert.Must(t, os.WriteFile(list, text, 0o600))
	return list
}

// switched returns the content of the files with mistakes, by path. A function with a mistake gets
// a second body, which runs if mistakeEnv selects the mistake.
func switched(t *testing.T, mistakes []mutant.Mistake) map[string]string {
	t.Helper()
	files, insert := map[string]string{}, map[string]map[int]string{}
	for _, m := range mistakes {
		source := assert.Value(os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File))))(t)
		text := string(source)
		if n := strings.Count(text, m.Old); n != 1 || m.Old == m.New {
			t.Errorf("%q: the text occurs %d times in %s, want once:\n%s", m.Name, n, m.File, m.Old)
			continue
		}
		set := token.NewFileSet()
		file := assert.Value(parser.ParseFile(set, m.File, text, parser.SkipObjectResolution))(t)
		at := strings.Index(text, m.Old)
		from, to, end := 0, 0, ""
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || set.Position(f.Body.Lbrace).Offset >= at ||
				set.Position(f.Body.Rbrace).Offset < at+len(m.Old) {
				continue
			}
			from, to = set.Position(f.Body.Lbrace).Offset+1, set.Position(f.Body.Rbrace).Offset
			if f.Type.Results == nil {
				end = "return\n"
			}
		}
		if to == 0 {
			t.Errorf("%q: the text is not in the body of a function", m.Name)
			continue
		}
		files[m.File] = text
		files[path.Join(path.Dir(m.File), "mistake_made.go")] = fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar mistakeMade = os.Getenv(%q)\n", file.Name, mistakeEnv)
		if insert[m.File] == nil {
			insert[m.File] = map[int]string{}
		}
		insert[m.File][from] += fmt.Sprintf("\nif mistakeMade == %q {%s%s%s\n%s}\n", m.Name,
			text[from:at], m.New, text[at+len(m.Old):to], end)
	}
	for file, bodies := range insert {
		for _, at := range slices.Backward(slices.Sorted(maps.Keys(bodies))) {
			files[file] = files[file][:at] + bodies[at] + files[file][at:]
		}
	}
	return files
}

// line matches a message of a failing test.
var line = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: .*$`)

// seed matches the seed of a failing walk.
var seed = regexp.MustCompile(` -simulation.seed=\d+`)

// fails runs a test program with one of its mistakes. The test of the mistake must fail with a
// message that contains the rule.
func fails(t *testing.T, m mutant.Mistake, binary string) {
	t.Helper()
	args := []string{"-test.run=^" + m.Test + "$", "-test.short", "-test.timeout=2m"}
	if m.Test == mutant.Walks {
		args = append(args, "-simulation.walks=50", fmt.Sprint("-simulation.from=", max(1, m.From)))
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = t.TempDir() // a failing test may write files
	cmd.Env = append(os.Environ(), mistakeEnv+"="+m.Name)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	lines := line.FindAllString(string(out), -1)
	with := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, m.Rule) })
	if err == nil || !strings.Contains(string(out), "--- FAIL: "+m.Test) || with < 0 {
		t.Fatalf("%q: want %q by %s, it ended with %v:\n%s", m.Name, m.Rule, m.Test, err, out)
	}
	t.Logf("noticed %s: %s%s", m.Test, strings.TrimSpace(lines[with]), seed.FindString(string(out)))
}
