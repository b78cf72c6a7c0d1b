// Package deploy holds what watches over replicas: the files for Prometheus and for
// Grafana, and what of them tests have to know.
package deploy

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Files are the rules, the dashboard and an example of a configuration.
//
//go:embed *.yml *.json
var Files embed.FS

// Vitess has the files of deploy/vitess.
//
//go:embed vitess/*.json vitess/*.sql
var Vitess embed.FS

// The names of the files.
const (
	Rules      = "stockd.rules.yml"
	RulesTest  = "stockd.rules.test.yml"
	Prometheus = "prometheus.yml"
	Dashboard  = "stockd.dashboard.json"
)

// Rule is one rule of Prometheus: an alert, or what is recorded.
type Rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	Annotations map[string]string `yaml:"annotations"`
}

// AllRules lists the rules.
func AllRules() ([]Rule, error) {
	content, err := Files.ReadFile(Rules)
	if err != nil {
		return nil, err
	}
	var file struct {
		Groups []struct {
			Rules []Rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", Rules, err)
	}
	var list []Rule
	for _, group := range file.Groups {
		list = append(list, group.Rules...)
	}
	return list, nil
}

// Panel is one picture of the dashboard.
type Panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

// Panels lists those of the dashboard, rows included.
func Panels() ([]Panel, error) {
	content, err := Files.ReadFile(Dashboard)
	if err != nil {
		return nil, err
	}
	var file struct {
		Panels []Panel `json:"panels"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", Dashboard, err)
	}
	return file.Panels, nil
}

// Expressions lists every expression of the rules and of the dashboard as Prometheus
// can evaluate it. Those of alerts are made to give 0 where they would give nothing:
// a comparison with a metric that is not there still gives nothing.
func Expressions() ([]string, error) {
	rules, err := AllRules()
	if err != nil {
		return nil, err
	}
	panels, err := Panels()
	if err != nil {
		return nil, err
	}
	compares := regexp.MustCompile(` (==|!=|<=|>=|<|>) `)
	var list []string
	for _, rule := range rules {
		if rule.Alert != "" {
			rule.Expr = compares.ReplaceAllString(rule.Expr, " $1 bool ")
		}
		list = append(list, rule.Expr)
	}
	variables := strings.NewReplacer("$__rate_interval", "30s", "$instance", ".*")
	for _, panel := range panels {
		for _, target := range panel.Targets {
			list = append(list, variables.Replace(target.Expr))
		}
	}
	return list, nil
}
