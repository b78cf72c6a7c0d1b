package deploy_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/migrations"
)

// Each table of the migrations has its place: on the shard of its item, with its numbers from a sequence and a look-up for what is
// unique over all items, or in the keyspace without shards, to which its name leads.
func TestEachTableHasItsPlaceOnVitess(t *testing.T) {
	var shop, global struct {
		Vindexes map[string]struct {
			Type string `json:"type"`
		} `json:"vindexes"`
		Tables map[string]struct {
			ColumnVindexes []struct {
				Column string `json:"column"`
				Name   string `json:"name"`
			} `json:"column_vindexes"`
			AutoIncrement struct {
				Sequence string `json:"sequence"`
			} `json:"auto_increment"`
		} `json:"tables"`
	}
	must.Do(t, json.Unmarshal(must.Get(deploy.Vitess.ReadFile("vitess/shop.vschema.json"))(t), &shop))
	must.Do(t, json.Unmarshal(must.Get(deploy.Vitess.ReadFile("vitess/shop_global.vschema.json"))(t), &global))
	rules := string(must.Get(deploy.Vitess.ReadFile("vitess/routing-rules.json"))(t))
	made := must.Get(migrations.Files.ReadFile("mysql/00001_schema.sql"))(t)
	tables := regexp.MustCompile(`(?ms)^CREATE TABLE IF NOT EXISTS (\w+) \((.*?)^\)`).FindAllSubmatch(made, -1)
	if len(tables) < 10 {
		t.Fatalf("the migrations make %d tables", len(tables))
	}
	for _, found := range tables {
		name, columns := string(found[1]), string(found[2])
		ofItem, sharded := shop.Tables[name]
		if !sharded {
			if _, ok := global.Tables[name]; !ok || !strings.Contains(rules, `"`+name+`"`) || !strings.Contains(rules, `"shop.`+name+`"`) {
				t.Errorf("%s is in no keyspace, or is not routed to shop_global", name)
			}
			continue
		}
		vindexes := make(map[string]string) // by column
		for _, v := range ofItem.ColumnVindexes {
			vindexes[v.Column] = shop.Vindexes[v.Name].Type
		}
		should.Be(t, ofItem.ColumnVindexes[0].Column, "goods_id", name, "is sharded by")
		if strings.Contains(columns, "AUTO_INCREMENT") && ofItem.AutoIncrement.Sequence == "" {
			t.Errorf("each shard of %s counts its own numbers", name)
		}
		for _, unique := range regexp.MustCompile(`UNIQUE KEY \w+ \((\w+)\)`).FindAllStringSubmatch(columns, -1) {
			if vindexes[unique[1]] != "consistent_lookup_unique" && unique[1] != "goods_id" {
				t.Errorf("%s.%s is unique on each shard alone", name, unique[1])
			}
		}
	}
}
