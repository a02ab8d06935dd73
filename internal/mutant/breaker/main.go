// Command breaker takes one rule of this module out, builds cmd/distlock with that, and lets it play a case of
// the study: breaker RULE CASE [flags of "distlock study"]. RULE is a name or a number of docs/mutants.md that
// changes a text; the changed file is laid over the real one by the Go tool, which must be at hand. It is run in
// the folder of the sources, and is no part of what is shipped.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"mongodlm/internal/mutant"
	"mongodlm/internal/study"
)

func main() { os.Exit(run(".", os.Args[1:], os.Stdout, os.Stderr)) }

// The exit codes: those of distlock.
const (
	failed = 1
	usage  = 2
)

// run is the whole program; root is the folder of the sources.
func run(root string, args []string, out, errOut io.Writer) int {
	say := func(code int, err error) int {
		fmt.Fprintf(errOut, "distlock study: %v\n", err)
		return code
	}
	if len(args) < 2 {
		return say(usage, errors.New("a rule and a case are needed: --break RULE CASE"))
	}
	rule, err := find(args[0])
	if err != nil {
		return say(usage, err)
	}
	dir, err := os.MkdirTemp("", "distlock-broken-")
	if err != nil {
		return say(failed, err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "distlock.exe") // the end that Windows wants, and nobody else minds
	if err := build(root, dir, binary, rule); err != nil {
		return say(failed, err)
	}
	fmt.Fprintf(errOut, "ours without a rule: %s (%s)\n", rule.Name, rule.File)
	broken := exec.Command(binary, append([]string{"study", "--generation", study.Ours}, args[1:]...)...)
	broken.Stdout, broken.Stderr = out, errOut
	if err := broken.Run(); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return exit.ExitCode() // it has said why
		}
		return say(failed, err)
	}
	return 0
}

// find returns the mistake of a name or a number. One of the store is none: the study has another store.
func find(rule string) (mutant.Mistake, error) {
	var names []string
	for i, m := range mutant.All() {
		asked := m.Name == rule || strconv.Itoa(i+1) == rule
		switch {
		case asked && m.File == "":
			return m, fmt.Errorf("%q is a mistake of a store, which only the simulation makes", m.Name)
		case asked && m.Test != "":
			return m, fmt.Errorf("%q is a mistake in package %s, which the study does not play", m.Name, m.Package)
		case asked:
			return m, nil
		case m.File == "" || m.Test != "":
			continue
		}
		names = append(names, m.Name)
	}
	return mutant.Mistake{}, fmt.Errorf("there is no rule %q that can be taken out; most like it are %s; "+
		"docs/mutants.md has all", rule, strings.Join(study.Nearest(rule, names), ", "))
}

// build builds cmd/distlock with a mistake in it.
func build(root, dir, binary string, m mutant.Mistake) error {
	name, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		return fmt.Errorf("the text of %q stands %d times in %s, want once", m.Name, n, m.File)
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {name: changed}})
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(changed, []byte(strings.Replace(string(text), m.Old, m.New, 1)), 0o600),
		os.WriteFile(overlay, replace, 0o600)); err != nil {
		return err
	}
	compile := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/distlock")
	compile.Dir = root
	if said, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	return nil
}
