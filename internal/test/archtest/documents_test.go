package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
)

// foreignNames matches names that this repository does not declare, although its documents put them
// in backticks:
//   - names of mongos, MongoDB and other programs
//   - names of fields in the database
//   - patterns such as Group/Case
var foreignNames = regexp.MustCompile(`^(` + strings.Join([]string{
	`_distLockPingThread|checkSkew|dist_lock_try|grabLock|isLockExpired|lock_try|reenter|stopPing|unlock`,
	`ConfigServer|config\.(locks|lockpings)|(sharers|waiters)\.process|_id|ping_|(state|process|waited|seq): \w+|state, ts`,
	`claim\.(attempts|batch|fence|notBefore|session|slot|state)`,
	`[A-Z_]+(=\d+)?( [A-Z_]+(=\d+)?)*`, // environment, definitions of the model
	`errors\.Is|excl|setsid|featureFlagSBE|go (get|work sync)|docker compose .*|spin .*`,
	`\.lockpings\.find\(\)|db\.getSiblingDB.*`,
	// Names of alerts and span attributes. The tests of the adapters check these names.
	`Distlock[A-Z]\w+|distlock\.[a-z]\w+(\.\w+)?`,
	`(catalogtest )?Group/Case|package\.Test/subtest|ts fence process`, // the notation of names
}, "|") + `)$`)

type knownNames struct {
	files    map[string]bool            // files and folders, and the base names of files
	declared map[string]map[string]bool // functions, types, fields and variables, by package
	tests    []string
	words    map[string]bool // all words of the Go files
	text     string          // all Go files except this one
}

func readNames(t *testing.T) *knownNames {
	t.Helper()
	h := &knownNames{files: map[string]bool{}, declared: map[string]map[string]bool{},
		words: map[string]bool{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		name, err = filepath.Rel(root, name)
		h.files[filepath.ToSlash(name)] = true
		h.files[filepath.Base(name)] = true
		return err
	})
	assert.Must(t, err)
	var text strings.Builder
	sources(t, func(name string, source []byte) {
		if name == "internal/test/archtest/documents_test.go" {
			return
		}
		text.Write(source)
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		assert.Must(t, err)
		h.declare(strings.TrimSuffix(file.Name.Name, "_test"), file)
	})
	h.text = text.String()
	for _, w := range word.FindAllString(h.text, -1) {
		h.words[w] = true
	}
	return h
}

func (h *knownNames) declare(pkg string, file *ast.File) {
	if h.declared[pkg] == nil {
		h.declared[pkg] = map[string]bool{}
	}
	note := func(names ...*ast.Ident) {
		for _, name := range names {
			h.declared[pkg][name.Name] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			note(n.Name)
			if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
				h.tests = append(h.tests, n.Name.Name)
			}
		case *ast.TypeSpec:
			note(n.Name)
		case *ast.ValueSpec:
			note(n.Names...)
		case *ast.Field:
			note(n.Names...)
		}
		return true
	})
}

// declares reports whether a package declares each part of a name such as Term.Err.
func (h *knownNames) declares(pkg, name string) bool {
	unknown := func(part string) bool { return !h.declared[pkg][part] }
	return !slices.ContainsFunc(strings.Split(name, "."), unknown)
}

var (
	fenced    = regexp.MustCompile("(?ms)^```.*?^```")
	backticks = regexp.MustCompile("`([^`]+)`")
	links     = regexp.MustCompile(`\]\(([^):#]+)[^)]*\)`)
	folders   = regexp.MustCompile(`(?:^|\s)\./([\w/-]+)`)

	testName  = regexp.MustCompile(`^(?:(\w+)\.)?(Test\w*)(\*|\.\.\.)?(?:/(\S+))?$`)
	testEnd   = regexp.MustCompile(`^\.\.\.(_\w+)$`)
	caseName  = regexp.MustCompile(`^(?:catalogtest )?([A-Z]\w+)/(\w+)(\.\.\.)?$`)
	fileName  = regexp.MustCompile(`^([\w./-]+\.(?:go|md|mod|pml|work|yml))(?: ([\w.]+))?$`)
	pathName  = regexp.MustCompile(`^[.\w-]+(/[\w-]+)+/?$`)
	inPackage = regexp.MustCompile(`^\*?([a-z]+)[ .]([\w.]+)$`)
	flagName  = regexp.MustCompile(`(?:^|\s)--?([a-z][\w.-]+)`)
	command   = regexp.MustCompile(`^(?:\w+=\S+ )*(?:go|distlock|docker|spin) `)
	symbol    = regexp.MustCompile(`^([A-Z]\w+: )?\*?[\w.]+(\(.*\))?$`) // or a setting
	word      = regexp.MustCompile(`\w+`)
	event     = regexp.MustCompile(`(?m)^\| (?:info|warn|error|debug|trace) \| ([^|]*) \|`)
	events    = regexp.MustCompile("(?s)\n## Events\n.*?\nCauses of `lost`:\n")
	item      = regexp.MustCompile("(?m)^- ((?:`[^`]+`(?:,\\s+)?)+)(?: \\((?:info|error)\\))?: ")
	phrase    = regexp.MustCompile(`^[a-z]+[:;,]?( [a-z]+[:;,]?)+$`)
)

// missing explains why a name does not exist. It returns an empty text if the name exists or has no
// known form.
func (h *knownNames) missing(name string) string {
	unless := func(ok bool, what string) string {
		if ok {
			return ""
		}
		return what
	}
	if foreignNames.MatchString(name) {
		return ""
	}
	if m := testName.FindStringSubmatch(name); m != nil {
		return h.missingTest(m[1], m[2], m[3] != "", m[4])
	}
	if m := testEnd.FindStringSubmatch(name); m != nil {
		ends := func(test string) bool { return strings.HasSuffix(test, m[1]) }
		return unless(slices.ContainsFunc(h.tests, ends), "no test with that end")
	}
	if m := caseName.FindStringSubmatch(name); m != nil && !h.files[name] {
		end := `"`
		if m[3] != "" {
			end = ""
		}
		return unless(strings.Contains(h.text, `{"`+m[1]+`", `) && strings.Contains(h.text, `"`+m[2]+end),
			"no such case in catalogtest")
	}
	if m := fileName.FindStringSubmatch(name); m != nil {
		return unless(h.files[m[1]] && h.known(m[2]), "no such file, or not declared")
	}
	if command.MatchString(name) || strings.HasPrefix(name, "-") {
		return h.missingFlag(name)
	}
	if pathName.MatchString(name) {
		p := strings.TrimSuffix(strings.TrimPrefix(name, "mongodlm/"), "/")
		return unless(h.files[p] || !h.files[strings.SplitN(p, "/", 2)[0]], "no such folder")
	}
	if m := inPackage.FindStringSubmatch(name); m != nil && h.declared[m[1]] != nil {
		return unless(h.declares(m[1], m[2]) || h.files[name], "not declared in that package")
	}
	if phrase.MatchString(name) {
		said := strings.TrimSuffix(name, " failed") // the log appends the word failed
		return unless(strings.Contains(h.text, said), "nothing in the code says so")
	}
	return unless(!symbol.MatchString(name) || h.known(name), "no Go file contains it")
}

// known reports whether each word of a name occurs in Go files.
func (h *knownNames) known(name string) bool {
	unknown := func(w string) bool { return !h.words[w] && !h.files[w] }
	return !slices.ContainsFunc(word.FindAllString(name, -1), unknown)
}

func (h *knownNames) missingFlag(name string) string {
	for _, m := range flagName.FindAllStringSubmatch(name, -1) {
		ours := strings.HasPrefix(name, "-") || strings.Contains(m[0], "--") ||
			strings.Contains(m[1], ".")
		if ours && !strings.Contains(h.text, `"`+m[1]+`"`) {
			return "no such flag: " + m[1]
		}
	}
	return ""
}

func (h *knownNames) missingTest(pkg, test string, begins bool, sub string) string {
	if begins {
		if !slices.ContainsFunc(h.tests, func(s string) bool { return strings.HasPrefix(s, test) }) {
			return "no test that begins so"
		}
		return ""
	}
	if !slices.Contains(h.tests, test) || pkg != "" && !h.declared[pkg][test] {
		return "no such test"
	}
	plain := strings.ReplaceAll(sub, "_", " ")
	if sub != "" && !strings.Contains(h.text, `"`+sub+`"`) &&
		!strings.Contains(h.text, `"`+plain+`"`) {
		return "no such subtest"
	}
	return ""
}

func documents(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "docs"),
		func(name string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(name, ".md") {
				names = append(names, name)
			}
			return err
		})
	if err != nil || len(names) == 0 {
		t.Fatalf("documents: %q, %v", names, err)
	}
	return append(names, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"),
		filepath.Join(root, "CHANGELOG.md"))
}

// Each test, file, package, function, type, flag and log message that the documents mention exists.
func TestDocuments_NameWhatExists(t *testing.T) {
	t.Parallel()
	h := readNames(t)
	h.tryOut(t)
	for _, name := range documents(t) {
		text := assert.Value(os.ReadFile(name))(t)
		said, _ := filepath.Rel(root, name)
		prose := strings.ReplaceAll(fenced.ReplaceAllString(string(text), ""), "\n", " ")
		for _, m := range backticks.FindAllStringSubmatch(prose, -1) {
			if said == "CHANGELOG.md" && !testName.MatchString(m[1]) {
				continue
			}
			if what := h.missing(m[1]); what != "" {
				t.Errorf("%s: `%s`: %s", said, m[1], what)
			}
		}
		listed := item.FindAllStringSubmatch(events.FindString(string(text)), -1)
		if said == "docs/operations.md" && len(listed) < 24 {
			t.Errorf("%s: only %d entries of events found", said, len(listed))
		}
		for _, m := range append(event.FindAllStringSubmatch(string(text), -1), listed...) {
			for _, of := range backticks.FindAllStringSubmatch(m[1], -1) {
				start, more := strings.CutSuffix(of[1], " ...")
				if !more {
					start = strings.TrimSuffix(start, " failed") + `"`
				}
				if !strings.Contains(h.text, `"`+start) {
					t.Errorf("%s: `%s`: no such event of the log", said, of[1])
				}
			}
		}
		for _, m := range folders.FindAllStringSubmatch(string(text), -1) {
			if !h.files[m[1]] && m[1] != "pan" { // the program spin writes the file pan
				t.Errorf("%s: ./%s: no such folder", said, m[1])
			}
		}
		for _, m := range links.FindAllStringSubmatch(prose, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", said, m[1])
			}
		}
	}
}

func (h *knownNames) tryOut(t *testing.T) {
	t.Helper()
	for there, gone := range map[string]string{
		"TestReadme_ExampleIsTheTest":                          "TestReadme_IsGone",
		"archtest.TestReadme_ExampleIsTheTest":                 "takeover.TestReadme_ExampleIsTheTest",
		"TestReadme_*":                                         "TestGone_*",
		"takeover.TestDecide_WatchRule/server_stepped_forward": "takeover.TestDecide_WatchRule/gone_for_ever",
		"catalogtest Odd/State":                                "catalogtest Odd/Gone",
		"takeover/decide.go":                                   "takeover/gone.go",
		"decide.go":                                            "gone_away.go",
		"takeover/observation.go watchedFor":                   "takeover/observation.go goneAway",
		"takeover watchedFor":                                  "takeover goneAway",
		"takeover.Decide":                                      "takeover.GoneAway",
		"Term.Err":                                             "Term.GoneAway",
		"guard.Context()":                                      "guard.GoneAway()",
		"distlock.WaitAtMost(d)":                               "distlock.GoneAway(d)",
		"TakeoverRule: takeover.WatchOnly":                     "GoneAway: takeover.WatchOnly",
		"ErrHeld":                                              "ErrGoneAway",
		"internal/test/archtest":                               "internal/goneaway",
		"--database":                                           "--gone-away",
		"go test ./internal/test/mutant -mutant.every=1":       "go test ./internal/test/mutant -gone.away=1",
		"ping loop is late":                                    "ping loop is goneaway",
	} {
		if what := h.missing(there); what != "" {
			t.Errorf("%s is there, and missed: %s", there, what)
		}
		if h.missing(gone) == "" {
			t.Errorf("%s is not there, and not missed", gone)
		}
	}
}

var docLink = regexp.MustCompile(`\[\*?([A-Za-z]\w*(?:\.[A-Za-z]\w*){0,2})\]`)

// Each doc link to a package of this repository leads to an existing declaration.
func TestComments_LinkWhatExists(t *testing.T) {
	t.Parallel()
	h := readNames(t)
	links := 0
	sources(t, func(name string, source []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), name, source,
			parser.ParseComments|parser.SkipObjectResolution)
		assert.Must(t, err)
		own := strings.TrimSuffix(file.Name.Name, "_test")
		for _, group := range file.Comments {
			for _, m := range docLink.FindAllStringSubmatch(group.Text(), -1) {
				pkg, linked := own, m[1]
				if !ast.IsExported(linked) {
					pkg, linked, _ = strings.Cut(linked, ".")
				}
				if h.declared[pkg] == nil || linked == "" || linked == strings.ToUpper(linked) {
					continue // a link to another module, or an argument in a usage text
				}
				links++
				if !h.declares(pkg, linked) {
					t.Errorf("%s: [%s] does not exist", name, m[1])
				}
			}
		}
	})
	if links < 100 {
		t.Errorf("%d links were found, want 100 at least", links)
	}
}
