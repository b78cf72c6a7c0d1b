package deploy_test

import (
	"encoding/xml"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// element is one of JMeter's: a test element, or one of its properties.
type element struct {
	XMLName  xml.Name
	Name     string    `xml:"name,attr"`
	Gui      string    `xml:"guiclass,attr"`
	Class    string    `xml:"testclass,attr"`
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// all lists an element with everything below it.
func (e element) all() []element {
	list := []element{e}
	for _, child := range e.Children {
		list = append(list, child.all()...)
	}
	return list
}

// property is the text of a property, or of none.
func (e element) property(name string) string {
	for _, child := range e.all() {
		if child.Name == name {
			return child.Text
		}
	}
	return ""
}

// arguments are the names and values of the list below.
func (e element) arguments() map[string]string {
	values := make(map[string]string)
	for _, child := range e.all() {
		if name := child.property("Argument.name"); len(child.Children) > 0 && name == child.Name {
			values[name] = child.property("Argument.value")
		}
	}
	return values
}

func jmeterPlan(t *testing.T) element {
	t.Helper()
	content := must.Get(os.ReadFile("jmeter/oversell.jmx"))(t)
	var plan element
	must.Do(t, xml.Unmarshal(content, &plan)) //nolint:musttag // xml.Name is the library's
	return plan
}

// only is the one element of its kind.
func only(t *testing.T, plan element, kind string) element {
	t.Helper()
	list := slices.DeleteFunc(plan.all(), func(e element) bool { return e.XMLName.Local != kind })
	must.Be(t, len(list), 1, "the elements of", kind)
	return list[0]
}

// JMeter reads a tree in pairs: each element is followed by the hashTree of what is below it.
func TestEachElementOfTheJMeterPlanHasItsTree(t *testing.T) {
	for _, e := range jmeterPlan(t).all() {
		if e.XMLName.Local != "hashTree" {
			continue
		}
		if len(e.Children)%2 != 0 {
			t.Errorf("a tree has %d children, which are no pairs", len(e.Children))
		}
		for i, child := range e.Children {
			kind := child.XMLName.Local
			if isTree := kind == "hashTree"; isTree != (i%2 == 1) || !isTree && (child.Class != kind || child.Gui == "") {
				t.Errorf("child %d of a tree is %s with the class %q and the panel %q", i+1, kind, child.Class, child.Gui)
			}
		}
	}
}

func TestTheJMeterPlanBuysAsTheDemoDoes(t *testing.T) {
	plan := jmeterPlan(t)
	group, sampler := only(t, plan, "ThreadGroup"), only(t, plan, "HTTPSamplerProxy")
	for _, c := range []struct {
		of         element
		name, want string
	}{
		{group, "ThreadGroup.num_threads", "50"},
		{group, "LoopController.loops", "100"},
		{sampler, "HTTPSampler.method", "POST"},
		{sampler, "HTTPSampler.path", "/deduct"},
		{sampler, "HTTPSampler.domain", "${host}"},
		{sampler, "HTTPSampler.port", "${port}"},
	} {
		should.Be(t, c.of.property(c.name), c.want, c.name, "is")
	}
	if got := sampler.arguments(); len(got) != 2 || got["goods_id"] != "${goods_id}" || got["strategy"] != "${strategy}" {
		t.Errorf("the form is %v", got)
	}
	should.Be(t, only(t, plan, "ResultCollector").Gui, "StatVisualizer", "the listener is")
}

// Every variable that is used is defined with a default, and can be set by -J.
func TestTheVariablesOfTheJMeterPlan(t *testing.T) {
	plan := jmeterPlan(t)
	defined := only(t, plan, "TestPlan").arguments()
	used := make(map[string]bool)
	for _, e := range plan.all() {
		for _, found := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(e.Text, -1) {
			used[found[1]] = true
		}
	}
	for name := range used {
		if set := regexp.MustCompile(`^\$\{__P\(` + name + `,.+\)\}$`); !set.MatchString(defined[name]) {
			t.Errorf("${%s} is %q", name, defined[name])
		}
	}
	if len(used) != 4 || len(defined) != 4 {
		t.Errorf("%v are used and %v defined, want host, port, goods_id and strategy", used, defined)
	}
	named := regexp.MustCompile(`,(.+)\)`).FindStringSubmatch(defined["strategy"])
	if named == nil || !slices.ContainsFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name == named[1] }) {
		t.Errorf("the default strategy is %q", defined["strategy"])
	}
}
