package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// broken plays the case by ours without one of its rules. This program has no such switch: it builds another
// one from the sources, in which the rule is missing, and runs that.
func (v *studies) broken(ctx context.Context, s stdio) error {
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("--break builds a program without the rule, and the Go tool is not here")
	}
	found, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "mongodlm").Output()
	root := strings.TrimSpace(string(found))
	const breaker = "internal/mutant/breaker"
	if err == nil {
		_, err = os.Stat(filepath.Join(root, filepath.FromSlash(breaker)))
	}
	if err != nil || root == "" {
		return errors.New("--break builds a program without the rule from the sources of the module, and they are " +
			"not here: run it in a checkout")
	}
	dir, err := os.MkdirTemp("", "distlock-break-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "breaker.exe") // the end that Windows wants, and nobody else minds
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./"+breaker)
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, shown(string(said), 2000))
	}
	args := []string{v.rule, v.cases[0].Name}
	for name, given := range map[string]bool{"--json": v.json, "--wide": v.wide} {
		if given {
			args = append(args, name)
		}
	}
	run := exec.CommandContext(ctx, program, args...)
	run.Dir, run.Stdout, run.Stderr = root, s.out, s.errOut
	err = run.Run()
	if code := (*exec.ExitError)(nil); errors.As(err, &code) {
		return exit{code: code.ExitCode()} // it has said why
	}
	return err
}
