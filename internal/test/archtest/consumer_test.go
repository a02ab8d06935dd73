package archtest_test

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
)

// mostLinked is the largest number of modules that a program may link if it uses the lock.
// mostModules is the largest size of its module graph, which also includes the dependencies of
// tests. Both numbers include this module and the module of the program.
const mostLinked, mostModules = 15, 30

// heavy matches modules that a program must not need to use the lock.
var heavy = regexp.MustCompile(
	`(?i)ferretdb|sqlite|grpc|opentelemetry|prometheus|pgx|protobuf|toxiproxy|porcupine|honnef`)

const consumerMain = `package main

import (
	"context"
	"fmt"
	"log"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
)

func main() {
	ctx := context.Background()
	manager, err := distlock.New(ctx, distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	guard, err := manager.Lock("reports").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(guard.Name(), " ", guard.Release())
}
`

// consumer writes a program in a module of its own, outside of the workspace. The module requires
// only the core module. consumer returns the folder of the program.
func consumer(t *testing.T, module string) string {
	t.Helper()
	checkout := assert.Value(filepath.Abs(root))(t)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum")) // go then needs no checksum database
	assert.Must(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": consumerMain,
		"go.sum":  string(sums),
		"go.mod": fmt.Sprintf("module consumer\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace "+
			"%[1]s => %s\n", module, filepath.ToSlash(checkout)),
	} {
		assert.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func goIn(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// A program that uses the lock builds outside of the workspace and depends on few modules.
func TestConsumer_OutsideOfTheWorkspace_HasASmallGraph(t *testing.T) {
	t.Parallel()
	dir := consumer(t, strings.TrimSuffix(ours, "/"))
	program := filepath.Join(dir, "consumer")
	_, err := goIn(t, dir, "build", "-ldflags=-s -w", "-o", program, ".")
	assert.Must(t, err)
	said, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil || string(said) != "reports <nil>" {
		t.Fatalf("the program says %q, %v", said, err)
	}
	linked := []string{"consumer"}
	for _, module := range assert.Value(buildinfo.ReadFile(program))(t).Deps {
		linked = append(linked, module.Path)
	}
	few(t, "links", linked, mostLinked)
	graph, err := goIn(t, dir, "list", "-m", "all")
	if err != nil {
		t.Skipf("the graph is not to be read without a network: %v", err)
	}
	few(t, "has in its graph", strings.Split(graph, "\n"), mostModules)
}

func few(t *testing.T, does string, modules []string, most int) {
	t.Helper()
	t.Logf("a consumer %s %d modules", does, len(modules))
	if len(modules) > most {
		t.Errorf("a consumer %s %d modules, at most %d: %q", does, len(modules), most, modules)
	}
	for _, module := range modules {
		if heavy.MatchString(module) {
			t.Errorf("a consumer %s %s", does, module)
		}
	}
}
