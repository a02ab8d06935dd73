package deploy

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// objects holds the Kubernetes objects of all manifests.
type objects struct {
	services map[string]*corev1.Service
	configs  map[string]*corev1.ConfigMap
	sets     map[string]*appsv1.StatefulSet
	budgets  map[string]*policyv1.PodDisruptionBudget
	pods     []corev1.PodTemplateSpec
	seen     []string
}

// read reads all manifests. An unknown or duplicate field fails the test.
func read(t *testing.T) *objects {
	t.Helper()
	all := &objects{map[string]*corev1.Service{},
		map[string]*corev1.ConfigMap{}, map[string]*appsv1.StatefulSet{},
		map[string]*policyv1.PodDisruptionBudget{}, nil, nil}
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("manifests: %q, %v, want two", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
			all.add(t, file, doc)
		}
	}
	return all
}

func (all *objects) add(t *testing.T, file string, doc []byte) {
	t.Helper()
	var what metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &what); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	strict := func(into metav1.Object) string {
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Fatalf("%s: %s: %v", file, what.Kind, err)
		}
		id := what.Kind + "/" + into.GetName()
		if slices.Contains(all.seen, id) {
			t.Errorf("%s: %s exists twice", file, id)
		}
		all.seen = append(all.seen, id)
		return into.GetName()
	}
	switch what.APIVersion + " " + what.Kind {
	case "v1 Service":
		var o corev1.Service
		all.services[strict(&o)] = &o
	case "v1 ConfigMap":
		var o corev1.ConfigMap
		all.configs[strict(&o)] = &o
	case "apps/v1 StatefulSet":
		var o appsv1.StatefulSet
		all.sets[strict(&o)] = &o
		all.pods = append(all.pods, o.Spec.Template)
	case "batch/v1 Job":
		var o batchv1.Job
		strict(&o)
		all.pods = append(all.pods, o.Spec.Template)
	case "policy/v1 PodDisruptionBudget":
		var o policyv1.PodDisruptionBudget
		all.budgets[strict(&o)] = &o
	default:
		t.Errorf("%s: unexpected object %s %s", file, what.APIVersion, what.Kind)
	}
}

// Each object that a manifest refers to exists: the pods of a selector, the service of a set, the
// configuration of a container, and the hosts of the connection string.
func TestKubernetes_WhatIsNamedIsThere(t *testing.T) {
	all := read(t)
	picks := func(who string, selector map[string]string) {
		t.Helper()
		if len(selector) == 0 || !slices.ContainsFunc(all.pods, func(p corev1.PodTemplateSpec) bool {
			return labels.SelectorFromSet(selector).Matches(labels.Set(p.Labels))
		}) {
			t.Errorf("%s selects no pod", who)
		}
	}
	for name, s := range all.services {
		picks("service "+name, s.Spec.Selector)
	}
	for name, b := range all.budgets {
		picks("budget "+name, b.Spec.Selector.MatchLabels)
	}
	hosts := map[string]bool{}
	for name, s := range all.sets {
		if !labels.SelectorFromSet(s.Spec.Selector.MatchLabels).Matches(
			labels.Set(s.Spec.Template.Labels)) {
			t.Errorf("set %s does not select its own pods", name)
		}
		if all.services[s.Spec.ServiceName] == nil {
			t.Errorf("set %s: there is no service %q", name, s.Spec.ServiceName)
		}
		for i := range *s.Spec.Replicas {
			hosts[name+"-"+string('0'+i)+"."+s.Spec.ServiceName+":27019"] = true
		}
	}
	for _, p := range all.pods {
		for _, c := range p.Spec.Containers {
			for _, from := range c.EnvFrom {
				if all.configs[from.ConfigMapRef.Name] == nil {
					t.Errorf("container %s: there is no configuration %q", c.Name, from.ConfigMapRef.Name)
				}
			}
		}
	}
	uri, err := url.Parse(all.configs["balancer"].Data["MONGODLM_URI"])
	if err != nil {
		t.Fatal(err)
	}
	for host := range strings.SplitSeq(uri.Host, ",") {
		if !hosts[host] {
			t.Errorf("the connection string names %q, which no set has", host)
		}
	}
}

// compose returns the services of docker-compose.yml, as Compose parses them.
func compose(t *testing.T) types.Services {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../docker-compose.yml"},
		cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project.Services
}

// Compose accepts docker-compose.yml, which has eight services, three of them balancers.
func TestCompose_IsUnderstood(t *testing.T) {
	services, balancers := compose(t), 0
	for _, s := range services {
		if slices.Contains(s.Command, "balancer") {
			balancers++
		}
	}
	if len(services) != 8 || balancers != 3 {
		t.Errorf("%d services, %d balancers, want 8 and 3", len(services), balancers)
	}
}
