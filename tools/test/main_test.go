package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

const root = "../.."

// spared are needs that no package of a distribution brings to every machine: what lacks them is skipped.
func spared() []string {
	return []string{"a disk that tells what is on it", "namespace", "root", "systemd", "mysql", "haproxy", "nginx 1.27.3", "vitess"}
}

// A test that lacks a server fails under -required only where it asks for it by the name that is required.
func TestWhatTestsNeedHasTheNameThatIsRequired(t *testing.T) {
	required, asked := names(append(needs(), compiler())), ""
	need := regexp.MustCompile(`\b(?:Need|Own|own|shared)\(t, (?:l, )?(?:&l\.\w+, )?"([^"]+)"`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasPrefix(path, root+"/tools/") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, found := range need.FindAllStringSubmatch(string(content), -1) {
			if !slices.Contains(required, found[1]) && !slices.Contains(spared(), found[1]) {
				t.Errorf("%s needs %q, which is none of %q", path, found[1], required)
			}
		}
		asked += string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names(needs()) {
		if !strings.Contains(asked, `"`+name+`"`) {
			t.Errorf("no test asks for %s", name)
		}
	}
}

func TestSkipsAreCountedByReason(t *testing.T) {
	const events = `{"Action":"run","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"a","Test":"TestOne","Output":"    lab_test.go:10: no mysql\n"}
{"Action":"skip","Package":"a","Test":"TestOne"}
{"Action":"output","Package":"a","Test":"TestTwo","Output":"    lab_test.go:10: no mysql\n"}
{"Action":"pass","Package":"a","Test":"TestTwo"}
{"Action":"skip","Package":"b"}
{"Action":"output","Package":"c","Test":"TestOne","Output":"    labtest.go:7: no mysql\n"}
{"Action":"skip","Package":"c","Test":"TestOne"}
{"Action":"output","Package":"c","Test":"TestTwo/x","Output":"        c_test.go:7: no disk\n"}
{"Action":"skip","Package":"c","Test":"TestTwo/x"}
`
	var ran []string
	skipped := make(map[string]int)
	must.Do(t, read(strings.NewReader(events), &ran, skipped))
	should.Equal(t, ran, []string{"TestOne"}, "the tests that ran")
	var out strings.Builder
	printSkipped(&out, skipped)
	should.Be(t, out.String(), "SKIPPED     2  no mysql\nSKIPPED     1  no disk\n", "it prints")
}

// Each package is tested once, also where the race detector is used for some of them alone.
func TestEachPackageIsInOnePart(t *testing.T) {
	t.Chdir(root)
	all := must.Get(options{}.parts(t.Context()))(t)
	must.Be(t, len(all), 1, "the parts")
	parts, err := options{race: true}.parts(t.Context())
	if err != nil || len(parts) != 2 || parts[0].outside || !parts[1].outside {
		t.Fatalf("%+v (%v), want one part with the race detector and one without", parts, err)
	}
	inParts := slices.Sorted(slices.Values(slices.Concat(parts[0].packages, parts[1].packages)))
	should.Equal(t, inParts, slices.Sorted(slices.Values(all[0].packages)), "the parts have")
}

// A part that fails is not covered up by another.
func TestAPartThatFailsFailsTheRun(t *testing.T) {
	t.Chdir(root)
	good, bad := options{packages: []string{"./internal/reload"}, timeout: "5m"}, options{packages: []string{"./no/such/package"}, timeout: "5m"}
	var ran []string
	if err := run(t.Context(), []options{good, bad}, os.Environ(), &ran, make(map[string]int)); err == nil || len(ran) == 0 {
		t.Errorf("it ends with %v after %q", err, ran)
	}
}

// go test passes where -run matches nothing.
func TestEachAlternativeMatchesATest(t *testing.T) {
	ran := []string{"TestA", "TestA/part", "TestA/part/more", "TestB"}
	for pattern, want := range map[string]bool{
		"": true, "TestA": true, "TestA|TestB": true, "^Test(A|C)$|TestB": true, "TestA/part": true, "TestA//more": true, "TestB$|TestA/pa": true,
		"TestC": false, "TestA|TestC": false, "^Test(A|C)$|TestD": false, "TestA/none": false, "TestB/part": false, "Test[": false,
	} {
		if err := mustMatch(pattern, ran); (err == nil) != want {
			t.Errorf("-run %s: %v", pattern, err)
		}
	}
}
