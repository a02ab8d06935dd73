package deploy

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Each pod meets the Pod Security Standard "restricted", checked with the code of Kubernetes. Each
// container has a memory limit, and no probe starts a program.
func TestKubernetes_Pods_AreRestrictedAndBounded(t *testing.T) {
	rule, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range read(t).pods {
		level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
		for _, said := range rule.EvaluatePod(level, &p.ObjectMeta, &p.Spec) {
			if !said.Allowed {
				t.Errorf("pod %v: %s: %s", p.Labels, said.ForbiddenReason, said.ForbiddenDetail)
			}
		}
		for _, c := range p.Spec.Containers {
			if c.Resources.Limits.Memory().IsZero() ||
				c.Resources.Requests.Memory().Cmp(*c.Resources.Limits.Memory()) > 0 {
				t.Errorf("container %s: its memory is %+v", c.Name, c.Resources)
			}
			if c.LivenessProbe != nil || c.ReadinessProbe != nil && c.ReadinessProbe.TCPSocket == nil {
				t.Errorf("container %s: its probes are %+v, %+v", c.Name, c.LivenessProbe, c.ReadinessProbe)
			}
			if r := c.ReadinessProbe; r != nil &&
				!slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
					return p.Name == r.TCPSocket.Port.StrVal
				}) {
				t.Errorf("container %s: it has no port %v", c.Name, r.TCPSocket.Port)
			}
		}
	}
}

// Each image of MongoDB has a tested version. The cache of a mongod is at most half of the
// container's memory. Each balancer serves its metrics at an exposed port.
func TestDeployments_MongodIsOneThatWasTried_BalancersShowMetrics(t *testing.T) {
	tried := triedVersions(t)
	look := func(where, image string, command []string, memory int64, ports []string) {
		t.Helper()
		if version, is := strings.CutPrefix(image, "mongo:"); is && !slices.Contains(tried, version) {
			t.Errorf("%s: version of %s is not tested; tested are %q", where, image, tried)
		}
		if slices.Contains(command, "mongod") {
			gb, err := strconv.ParseFloat(after(command, "--wiredTigerCacheSizeGB"), 64)
			if err != nil || memory == 0 || int64(gb*(1<<30)) > memory/2 {
				t.Errorf("%s: a cache of %v GB in %d bytes (%v)", where, gb, memory, err)
			}
		}
		if slices.Contains(command, "balancer") {
			if _, port, _ := strings.Cut(after(command, "--metrics"), ":"); !slices.Contains(ports, port) {
				t.Errorf("%s: metrics are at %q, ports are %q", where, port, ports)
			}
		}
	}
	for _, p := range read(t).pods {
		for _, c := range p.Spec.Containers {
			var ports []string
			for _, port := range c.Ports {
				ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
			}
			look(c.Name, c.Image, append(c.Command, c.Args...), c.Resources.Limits.Memory().Value(), ports)
		}
	}
	for name, s := range compose(t) {
		look(name, s.Image, s.Command, int64(s.MemLimit), s.Expose)
	}
}

func after(command []string, flag string) string {
	if i := slices.Index(command, flag); i >= 0 && i+1 < len(command) {
		return command[i+1]
	}
	return ""
}

// triedVersions returns the versions that docs/operations.md lists as tested.
func triedVersions(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	run := regexp.MustCompile("(?m)^- run on ([\\d., ]+); .*: one `findAndModify`").FindStringSubmatch(
		string(text))
	if run == nil {
		t.Fatal("docs/operations.md lists no tested versions")
	}
	return strings.Split(run[1], ", ")
}

// The file .dockerignore excludes .git, but no folder of a module in go.work.
func TestDockerignore_LeavesOutWhatIsNotBuilt(t *testing.T) {
	text, err := os.ReadFile("../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.ReadFile("../go.work")
	if err != nil {
		t.Fatal(err)
	}
	patterns := strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(string(text), ""))
	if !slices.Contains(patterns, ".git") {
		t.Errorf(".git is sent to the builder: %q", patterns)
	}
	for module := range strings.FieldsSeq(string(work)) {
		for _, p := range patterns {
			if "./"+p == module {
				t.Errorf("%s is in .dockerignore and in go.work", p)
			}
		}
	}
}
