package config_test

import (
	"testing"

	"github.com/stockd/stockd/internal/config"
)

func TestWhoMayChooseAStrategy(t *testing.T) {
	for _, c := range []struct {
		choose, listen string
		want           bool
	}{
		{"auto", "127.0.0.1:8080", true},
		{"auto", "127.8.9.1:0", true},
		{"auto", "[::1]:8080", true},
		{"auto", "localhost:8080", true},
		{"auto", "0.0.0.0:8080", false}, // the Docker image
		{"auto", "[::]:8080", false},
		{"auto", ":8080", false},
		{"auto", "10.0.0.7:8080", false},
		{"auto", "localhost.example.com:8080", false},
		{"auto", "127.0.0.1.example.com:8080", false},
		{"true", "0.0.0.0:8080", true},
		{"false", "127.0.0.1:8080", false},
	} {
		got := config.Config{HTTP: config.HTTP{Listen: c.listen}, Deduct: config.Deduct{Choose: c.choose}}.MayChoose()
		if got != c.want {
			t.Errorf("deduct.choose %s on %s: %v, want %v", c.choose, c.listen, got, c.want)
		}
	}
}
