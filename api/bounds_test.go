package api_test

import (
	"fmt"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stockd/stockd/api"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// The bounds and words of the description are those of the code.
func TestTheDescriptionHasTheBoundsOfTheCode(t *testing.T) {
	var described struct {
		OpenAPI    string `yaml:"openapi"`
		Components struct {
			Schemas map[string]map[string]any `yaml:"schemas"`
		} `yaml:"components"`
	}
	must.Do(t, yaml.Unmarshal(api.Description, &described))
	for _, c := range []struct {
		schema, bound string
		want          any
	}{
		{"ID", "minimum", 1},
		{"Quantity", "minimum", 1},
		{"Quantity", "maximum", stock.MaxQuantity},
		{"Quantity", "default", 1},
		{"MaxQuantity", "minimum", 1},
		{"MaxQuantity", "maximum", stock.MaxQuantity},
		{"Stock", "minimum", 0},
		{"Stock", "maximum", int64(stock.MaxStock)},
		{"Restocked", "minimum", 1},
		{"Restocked", "maximum", int64(stock.MaxStock)},
		{"PerUser", "minimum", 0},
		{"PerUser", "maximum", stock.MaxPerUser},
		{"UserID", "maxLength", stock.MaxUserID},
		{"RequestID", "minLength", 1},
		{"RequestID", "maxLength", stock.MaxRequestID},
		{"PaymentReference", "minLength", 1},
		{"PaymentReference", "maxLength", stock.MaxPaymentReference},
		{"TTL", "minimum", 1},
		{"Durability", "enum", []stock.Durability{stock.InRedis, stock.InSQL}},
		{"State", "enum", []stock.State{stock.Held, stock.Confirmed, stock.Released, stock.Expired}},
	} {
		should.Be(t, fmt.Sprint(described.Components.Schemas[c.schema][c.bound]), fmt.Sprint(c.want), c.bound, "of", c.schema)
	}
}
