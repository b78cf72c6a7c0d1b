package helm

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	scaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const chart = "stockd"

var update = flag.Bool("update", false, "write the golden file anew")

// TestMain keeps Helm from saying at each load that the files of the chart are links.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// shops are the values of each file in testdata, and those for the operator of Vitess.
func shops(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("the values are %q, %v", files, err)
	}
	list := make(map[string]map[string]any)
	for _, file := range append(files, "../vitess/operator.values.yaml") {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			t.Fatal(err)
		}
		list[strings.TrimSuffix(filepath.Base(file), ".values.yaml")] = values
	}
	return list
}

// render is what helm template prints, in the order of the files.
func render(values map[string]any) ([]string, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: "shop", Namespace: "sale", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var manifests []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for manifest := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(manifest) != "" {
				manifests = append(manifests, strings.TrimSpace(manifest)+"\n")
			}
		}
	}
	return manifests, nil
}

// typed decodes a manifest strictly into the type of Kubernetes that it names.
func typed(t *testing.T, manifest string) meta.Object {
	t.Helper()
	var kind meta.TypeMeta
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		t.Fatalf("%v:\n%s", err, manifest)
	}
	types := map[string]func() meta.Object{
		"apps/v1 Deployment":                      func() meta.Object { return new(apps.Deployment) },
		"autoscaling/v2 HorizontalPodAutoscaler":  func() meta.Object { return new(scaling.HorizontalPodAutoscaler) },
		"batch/v1 Job":                            func() meta.Object { return new(batch.Job) },
		"v1 ConfigMap":                            func() meta.Object { return new(core.ConfigMap) },
		"v1 Pod":                                  func() meta.Object { return new(core.Pod) },
		"v1 Service":                              func() meta.Object { return new(core.Service) },
		"v1 ServiceAccount":                       func() meta.Object { return new(core.ServiceAccount) },
		"networking.k8s.io/v1 NetworkPolicy":      func() meta.Object { return new(network.NetworkPolicy) },
		"policy/v1 PodDisruptionBudget":           func() meta.Object { return new(policy.PodDisruptionBudget) },
		"monitoring.coreos.com/v1 ServiceMonitor": func() meta.Object { return new(monitoring.ServiceMonitor) },
		"monitoring.coreos.com/v1 PrometheusRule": func() meta.Object { return new(monitoring.PrometheusRule) },
	}
	create, known := types[kind.APIVersion+" "+kind.Kind]
	if !known {
		t.Fatalf("%s %s is not expected", kind.APIVersion, kind.Kind)
	}
	object := create()
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Errorf("%s: %v", kind.Kind, err)
	}
	return object
}

func objects(t *testing.T, values map[string]any) (list []meta.Object) {
	t.Helper()
	manifests, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range manifests {
		list = append(list, typed(t, manifest))
	}
	return list
}

// one is the object of a type whose name ends so.
func one[T meta.Object](t *testing.T, list []meta.Object, suffix string) T {
	t.Helper()
	var found []T
	for _, object := range list {
		if of, ok := object.(T); ok && strings.HasSuffix(object.GetName(), suffix) {
			found = append(found, of)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d of %T with names in %q", len(found), *new(T), suffix)
	}
	return found[0]
}

// stockds are the pods that run for the shop.
func stockds(t *testing.T, list []meta.Object) map[string]core.PodSpec {
	t.Helper()
	return map[string]core.PodSpec{
		"replica": one[*apps.Deployment](t, list, "").Spec.Template.Spec, "migration": one[*batch.Job](t, list, "").Spec.Template.Spec,
	}
}

func TestHelmFindsNothingWrong(t *testing.T) {
	for name, values := range shops(t) {
		for _, message := range lint.All(chart, values, "sale", true).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, message)
			}
		}
	}
}

// withoutFiles leaves out what a manifest has of the files of the project, which have tests of their own.
var withoutFiles = regexp.MustCompile(`(?s)(?:\n  stockd\.(?:yaml|json): \||\n  groups:\n).*$`)

// Every manifest is of the type that it names, without an unknown field.
func TestEveryManifestIsOfItsType(t *testing.T) {
	for _, values := range shops(t) {
		objects(t, values)
	}
}

// What the chart makes for a shop stands in a file, which the tests of stockd run without Helm: go test -update
// writes it anew.
func TestTheManifestsOfAShopAreInTheirFile(t *testing.T) {
	manifests, err := render(shops(t)["shop"])
	if err != nil {
		t.Fatal(err)
	}
	for i, manifest := range manifests {
		manifests[i] = withoutFiles.ReplaceAllString(manifest, "\n")
	}
	const golden = "testdata/shop.golden.yaml"
	got := strings.Join(manifests, "---\n")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, []byte(got)) {
		t.Errorf("%s is not what the chart makes (%v): look at what go test -update changes", golden, err)
	}
}

// The selectors of services, budgets and policies choose the replicas, and neither the migration nor the
// test.
func TestSelectorsChooseTheReplicasAlone(t *testing.T) {
	list := objects(t, shops(t)["everything"])
	replicas := one[*apps.Deployment](t, list, "-stockd").Spec.Template.Labels
	others := []map[string]string{one[*batch.Job](t, list, "").Spec.Template.Labels, one[*core.Pod](t, list, "-test").Labels}
	chooses := func(what string, selector map[string]string) {
		for key, value := range selector {
			if replicas[key] != value {
				t.Errorf("%s does not choose the replicas: %s is %q", what, key, value)
			}
		}
		for _, labels := range others {
			matches := len(selector) > 0
			for key, value := range selector {
				matches = matches && labels[key] == value
			}
			if matches {
				t.Errorf("%s chooses %v", what, labels)
			}
		}
	}
	chooses("the service", one[*core.Service](t, list, "-stockd").Spec.Selector)
	chooses("the admin service", one[*core.Service](t, list, "-admin").Spec.Selector)
	chooses("the deployment", one[*apps.Deployment](t, list, "-stockd").Spec.Selector.MatchLabels)
	chooses("the budget", one[*policy.PodDisruptionBudget](t, list, "").Spec.Selector.MatchLabels)
	chooses("the policy", one[*network.NetworkPolicy](t, list, "").Spec.PodSelector.MatchLabels)
	monitor := one[*monitoring.ServiceMonitor](t, list, "").Spec
	for key, value := range monitor.Selector.MatchLabels {
		if admin := one[*core.Service](t, list, "-admin").Labels; admin[key] != value {
			t.Errorf("Prometheus does not find the admin service: %s is %q", key, value)
		}
	}
}

// No pod runs as root, writes to its root, or may more than it needs; the password of the schema's owner is in
// the migration alone.
func TestPodsMayOnlyWhatTheyNeed(t *testing.T) {
	for name, values := range shops(t) {
		list := objects(t, values)
		pods := stockds(t, list)
		if name != "bare" {
			pods["test"] = one[*core.Pod](t, list, "").Spec
		}
		for of, pod := range pods {
			if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
				t.Errorf("%s: the %s may be root, or has a token of Kubernetes: %+v", name, of, s)
			}
			for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
				s := c.SecurityContext
				if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
					t.Errorf("%s: the container %s may %+v", name, c.Name, s)
				}
			}
			text := fmt.Sprintf("%+v", pod)
			if owns := strings.Contains(text, "owner-password"); owns != (of == "migration") {
				t.Errorf("%s: the %s has the owner's password: %t", name, of, owns)
			}
		}
	}
}

// The migration has the password of the schema's owner: it encrypts its connections where replicas do.
func TestTheMigrationEncryptsAsTheReplicasDo(t *testing.T) {
	list := objects(t, shops(t)["everything"])
	tls := func(pod core.PodSpec) (found []core.EnvVar) {
		for _, variable := range pod.Containers[0].Env {
			if strings.HasPrefix(variable.Name, "STOCKD_DATABASE_TLS_") {
				found = append(found, variable)
			}
		}
		return found
	}
	replicas, migration := tls(one[*apps.Deployment](t, list, "").Spec.Template.Spec), tls(one[*batch.Job](t, list, "").Spec.Template.Spec)
	if want := []core.EnvVar{
		{Name: "STOCKD_DATABASE_TLS_CA_FILE", Value: "/run/secrets/stockd/ca.pem"}, {Name: "STOCKD_DATABASE_TLS_ENABLED", Value: "true"},
	}; !slices.Equal(replicas, want) || !slices.Equal(migration, want) {
		t.Errorf("replicas have %v and the migration has %v, want %v", replicas, migration, want)
	}
}

// A file of the Secret is where config names it, for replicas and for the migration.
func TestFilesOfTheSecretAreMounted(t *testing.T) {
	list := objects(t, shops(t)["everything"])
	for of, pod := range stockds(t, list) {
		secret := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == "secrets" })].Secret
		if !slices.Contains(secret.Items, core.KeyToPath{Key: "ca.pem", Path: "ca.pem"}) {
			t.Errorf("the %s has %v of the Secret, and no ca.pem", of, secret.Items)
		}
	}
}

// The admin API answers to every name that Kubernetes gives its Service, or to those that config has, once.
func TestTheAdminAPIHasTheNamesOfItsService(t *testing.T) {
	hosts := func(values map[string]any) (found []string) {
		for _, variable := range one[*apps.Deployment](t, objects(t, values), "").Spec.Template.Spec.Containers[0].Env {
			if variable.Name == "STOCKD_ADMIN_HOSTS" {
				found = append(found, variable.Value)
			}
		}
		return found
	}
	values := maps.Clone(shops(t)["shop"])
	if got, want := hosts(values), []string{"shop-stockd-admin,shop-stockd-admin.sale,shop-stockd-admin.sale.svc,shop-stockd-admin.sale.svc.cluster.local"}; !slices.Equal(got, want) {
		t.Errorf("it answers to %q, want %q", got, want)
	}
	values["config"] = map[string]any{"admin.hosts": "admin.shop.example"}
	if got, want := hosts(values), []string{"admin.shop.example"}; !slices.Equal(got, want) {
		t.Errorf("it answers to %q, want %q", got, want)
	}
}

// A crowd that has all connections of the buyers' port ends no replica and takes none out of the Service, which
// would send it to the others.
func TestNoCrowdEndsAReplica(t *testing.T) {
	container := one[*apps.Deployment](t, objects(t, shops(t)["shop"]), "").Spec.Template.Spec.Containers[0]
	for of, probe := range map[string]*core.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if port := probe.HTTPGet.Port.StrVal; port != "admin" {
			t.Errorf("the %s probe asks the port %s", of, port)
		}
	}
}

// The migration is not ended before it gives up: after an hour, schemaWithin of internal/repo.
func TestTheMigrationHasTheTimeThatItTakes(t *testing.T) {
	source, err := os.ReadFile("../../internal/repo/schema.go")
	if err != nil || !strings.Contains(string(source), "const schemaWithin = time.Hour\n") {
		t.Fatalf("a change of the schema has no hour any more (%v)", err)
	}
	if within := *one[*batch.Job](t, objects(t, shops(t)["shop"]), "").Spec.ActiveDeadlineSeconds; within <= 3600 {
		t.Errorf("the migration is ended after %d s", within)
	}
}

// The pod of helm test reaches both ports, no matter who else may.
func TestThePodOfHelmTestReachesBothPorts(t *testing.T) {
	for name, values := range shops(t) {
		if name == "bare" {
			continue // it has no such pod
		}
		list := objects(t, values)
		labels := one[*core.Pod](t, list, "-test").Labels
		for _, rule := range one[*network.NetworkPolicy](t, list, "").Spec.Ingress {
			if !slices.ContainsFunc(rule.From, func(p network.NetworkPolicyPeer) bool {
				return p.PodSelector != nil && p.NamespaceSelector == nil && maps.Equal(p.PodSelector.MatchLabels, labels)
			}) {
				t.Errorf("%s: the port %s is closed to the pod of helm test", name, rule.Ports[0].Port)
			}
		}
	}
}

// The rules and the dashboard choose replicas by the name of their job, which is a label of the Service.
func TestTheJobOfTheMetricsIsThatOfTheRules(t *testing.T) {
	list := objects(t, shops(t)["everything"])
	label := one[*monitoring.ServiceMonitor](t, list, "").Spec.JobLabel
	job := one[*core.Service](t, list, "-admin").Labels[label]
	named := regexp.MustCompile(`\bjob=\\?"([^"\\]*)`)
	for _, file := range []string{"../stockd.rules.yml", "../stockd.dashboard.json"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := named.FindAllStringSubmatch(string(content), -1)
		if len(found) == 0 {
			t.Errorf("%s names no job", file)
		}
		for _, match := range found {
			if match[1] != job {
				t.Errorf("%s is about the job %s, and the metrics are of %q", file, match[1], job)
			}
		}
	}
}

// A replica ends its purchases before it is killed: http.drain_delay and http.drain of the file, and
// some seconds more.
func TestAReplicaHasTheTimeToDrain(t *testing.T) {
	list := objects(t, shops(t)["shop"])
	var file struct {
		HTTP struct {
			DrainDelay meta.Duration `json:"drain_delay"`
			Drain      meta.Duration `json:"drain"`
		} `json:"http"`
	}
	config := one[*core.ConfigMap](t, list, "-stockd").Data["stockd.yaml"]
	if err := yaml.Unmarshal([]byte(config), &file); err != nil {
		t.Fatal(err)
	}
	pod := one[*apps.Deployment](t, list, "").Spec.Template.Spec
	drains := int64((file.HTTP.DrainDelay.Duration + file.HTTP.Drain.Duration).Seconds())
	if grace := *pod.TerminationGracePeriodSeconds; drains == 0 || grace < drains+5 {
		t.Errorf("it has %d s to drain for %d", grace, drains)
	}
	ready := pod.Containers[0].ReadinessProbe
	if noticed := int64(ready.PeriodSeconds * ready.FailureThreshold); noticed >= int64(file.HTTP.DrainDelay.Seconds()) {
		t.Errorf("it is noticed after %d s that it is not ready, and drains after %s", noticed, file.HTTP.DrainDelay.Duration)
	}
}

func TestTheFilesAreThoseOfTheProject(t *testing.T) {
	list := objects(t, shops(t)["everything"])
	content, err := os.ReadFile("../stockd.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(content, &want); err != nil {
		t.Fatal(err)
	}
	if got := one[*monitoring.PrometheusRule](t, list, "").Spec; len(want.Groups) == 0 || !reflect.DeepEqual(got, want) {
		t.Error("the rules are not those of deploy/stockd.rules.yml")
	}
	for file, got := range map[string]string{
		"../stockd.dashboard.json":      one[*core.ConfigMap](t, list, "-dashboard").Data["stockd.json"],
		"../../configs/production.yaml": one[*core.ConfigMap](t, list, "-stockd").Data["stockd.yaml"],
	} {
		if want, err := os.ReadFile(file); err != nil || strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
			t.Errorf("%s is not what the chart has (%v)", file, err)
		}
	}
}

func TestWrongValuesAreNamed(t *testing.T) {
	for _, wrong := range []struct{ path, value, want string }{
		{"replicas", "0", "replicas"},
		{"existingSecret", `""`, "existingSecret"},
		{"database", `{dsn: "", ownerDSN: o@tcp(db)/s}`, "dsn"},
		{"image", `{repository: stockd}`, "image"},
		{"image", `{repository: stockd, digest: "sha256:1"}`, "digest"},
		{"config", `{deduct_strategy: sql-bucket}`, "deduct_strategy"},
		{"config", `{limit.user_rate: 5}`, "config"},
		{"config", `{admin.tls.cert_file: /run/secrets/stockd/admin.pem}`, "admin.tls.cert_file is set, but the probes"},
		{"replica", "3", "replica"},
		{"service", "{type: ExternalName}", "type"},
	} {
		values := maps.Clone(shops(t)["shop"])
		var value any
		if err := yaml.Unmarshal([]byte(wrong.value), &value); err != nil {
			t.Fatal(err)
		}
		values[wrong.path] = value
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %s ends with %v, want %q", wrong.path, wrong.value, err, wrong.want)
		}
	}
	if _, err := render(nil); err == nil {
		t.Error("the chart can be installed with no values at all")
	}
}
