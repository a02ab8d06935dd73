package prometheus_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/test/assert"
)

// shown returns the type and the labels of each metric that a Collector exports.
func shown(t *testing.T) (types, labels map[string]string) {
	t.Helper()
	c := newCollector(t)
	everything(c)
	c.Watch(source{})
	r := prom.NewPedanticRegistry()
	assert.Must(t, r.Register(c))
	families := assert.Value(r.Gather())(t)
	types, labels = map[string]string{}, map[string]string{}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
		var names []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			names = append(names, l.GetName())
		}
		slices.Sort(names)
		labels[f.GetName()] = strings.Join(names, ", ")
	}
	return types, labels
}

func document(t *testing.T) string {
	t.Helper()
	text := assert.Value(os.ReadFile("../../docs/metrics.md"))(t)
	return string(text)
}

// metricItem matches the list item of a metric in docs/metrics.md.
var metricItem = regexp.MustCompile("(?m)^- `(distlock_\\w+)(?:{([\\w,]+)})?`(, histogram)?: .")

// documented returns the name, type and labels of a metric from a match of metricItem.
func documented(item []string) (name, kind, labels string) {
	kind = "gauge"
	switch {
	case item[3] != "":
		kind = "histogram"
	case strings.HasSuffix(item[1], "_total"):
		kind = "counter"
	}
	return item[1], kind, strings.ReplaceAll(item[2], ",", ", ")
}

// ofThePage is the name prefix of the metrics that the command "distlock ui" exports. A test of
// that command compares these metrics with docs/metrics.md.
const ofThePage = "distlock_store_"

// docs/metrics.md lists every metric with its type and labels, and lists no other metric.
func TestDocument_ListsEveryMetric(t *testing.T) {
	t.Parallel()
	types, labels := shown(t)
	listed := map[string]bool{}
	for _, m := range metricItem.FindAllStringSubmatch(document(t), -1) {
		name, kind, has := documented(m)
		if listed[name] = true; strings.HasPrefix(name, ofThePage) {
			continue
		}
		if types[name] != kind {
			t.Errorf("%s is documented as a %s, and is a %q", name, kind, types[name])
		}
		if has != labels[name] {
			t.Errorf("%s is documented with labels %q, and has %q", name, has, labels[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if !listed[name] {
			t.Errorf("%s is not documented", name)
		}
	}
}

// docs/metrics.md lists every kind of command that a Manager counts.
func TestDocument_ListsEveryKindOfCommand(t *testing.T) {
	t.Parallel()
	m, _ := start(t, memcatalog.New(memcatalog.Options{}))
	rows := regexp.MustCompile("(?s)\nKinds of commands:\n\n.*?\n\n").FindString(document(t))
	for kind := range m.Stats().Commands {
		if !strings.Contains(rows, "`"+kind+"`") {
			t.Errorf("the kind %s is not documented", kind)
		}
	}
}

// Each alert fires on the bad data in alerts_test.yaml, and no alert fires on the good data.
func TestAlerts_OfABadHalfHour_AreRaised(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: the alerts are not tested")
	}
	try := exec.CommandContext(t.Context(), tool, "test", "rules", "alerts_test.yaml")
	out, err := try.CombinedOutput()
	assert.NoErr(t, err, string(out))
}

// The dashboard and the alerts use only metrics and labels that exist.
func TestDashboardAndAlerts_AskForWhatThereIs(t *testing.T) {
	t.Parallel()
	expressions := append(dashboard(t), alerts(t)...)
	if len(expressions) < 20 {
		t.Fatalf("only %d expressions found", len(expressions))
	}
	types, labels := shown(t)
	for _, m := range metricItem.FindAllStringSubmatch(document(t), -1) {
		if strings.HasPrefix(m[1], ofThePage) {
			_, types[m[1]], labels[m[1]] = documented(m)
		}
	}
	metric := regexp.MustCompile(`distlock_\w+`)
	grouped := regexp.MustCompile(`(?:by|on) \(([^)]*)\)`)
	selected := regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"`)
	quoted := regexp.MustCompile(`"[^"]*"`)
	for _, e := range expressions {
		known := map[string]bool{"job": true, "instance": true, "le": strings.Contains(e, "_bucket")}
		for _, name := range metric.FindAllString(quoted.ReplaceAllString(e, `""`), -1) {
			base := name
			if types[name] == "" {
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					base = strings.TrimSuffix(base, part)
				}
			}
			if types[base] == "" || base != name && types[base] != "histogram" {
				t.Errorf("there is no %s: %s", name, e)
			}
			for l := range strings.SplitSeq(labels[base], ", ") {
				known[l] = true
			}
		}
		var used []string
		for _, m := range grouped.FindAllStringSubmatch(e, -1) {
			used = append(used, strings.Split(m[1], ", ")...)
		}
		for _, m := range selected.FindAllStringSubmatch(e, -1) {
			used = append(used, m[1])
		}
		for _, l := range used {
			if !known[l] {
				t.Errorf("there is no label %s: %s", l, e)
			}
		}
	}
}

func dashboard(t *testing.T) (all []string) {
	t.Helper()
	var d struct {
		Title, UID string
		Panels     []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name string }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil || d.Title == "" || d.UID == "" || len(d.Templating.List) != 3 {
		t.Fatalf("dashboard.json: %v, %+v", err, d)
	}
	for _, p := range d.Panels {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("a panel has no title, description or expression: %+v", p)
		}
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

func alerts(t *testing.T) (all []string) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	text := assert.Value(os.ReadFile("alerts.yaml"))(t)
	file := yaml.NewDecoder(strings.NewReader(string(text)))
	file.KnownFields(true)
	assert.Must(t, file.Decode(&rules))
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
				r.Annotations["description"] == "" {
				t.Errorf("alert %s is incomplete: %+v", r.Alert, r)
			}
			if !strings.Contains(document(t), "\n- `"+r.Alert+"`: ") {
				t.Errorf("docs/metrics.md does not list alert %s", r.Alert)
			}
			all = append(all, r.Expr)
		}
	}
	return all
}
