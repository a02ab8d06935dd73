package archtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
)

// mostLinked is the largest number of modules that a program may link if it uses the lock.
// mostModules is the largest size of the module graph, which also includes the dependencies of
// tests. Both numbers include the core module.
const mostLinked, mostModules = 14, 36

// heavy matches modules that a program must not need to use the lock.
var heavy = regexp.MustCompile(
	`(?i)ferretdb|sqlite|grpc|opentelemetry|prometheus|pgx|protobuf|toxiproxy|porcupine|honnef`)

// alone runs go in the core module outside of the workspace, as for a program that requires only
// that module.
func alone(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// The core module builds outside of the workspace and depends on few modules.
func TestConsumer_OutsideOfTheWorkspace_HasASmallGraph(t *testing.T) {
	t.Parallel()
	used := []string{"./distlock", "./catalog/memcatalog"}
	_, err := alone(t, append([]string{"build"}, used...)...)
	assert.Must(t, err)
	list := []string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}
	linked, err := alone(t, append(list, used...)...)
	assert.Must(t, err)
	few(t, "links", linked, mostLinked)
	graph, err := alone(t, "list", "-m", "all")
	if err != nil {
		t.Skipf("the graph is not to be read without a network: %v", err)
	}
	few(t, "has in its graph", graph, mostModules)
}

func few(t *testing.T, does, list string, most int) {
	t.Helper()
	modules := strings.Split(list, "\n")
	slices.Sort(modules)
	modules = slices.Compact(modules)
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
