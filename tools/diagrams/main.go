// Command diagrams draws docs/diagrams/*.mmd, which are Mermaid text, as pictures beside them. It needs npm
// and Chromium.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stockd/stockd/internal/lab/servers"
)

const (
	folder = "docs/diagrams"
	drawer = "@mermaid-js/mermaid-cli@11.12.0"
	// asText leaves no HTML in a picture: not every program that shows one knows it.
	asText = `{"htmlLabels": false, "flowchart": {"htmlLabels": false}}`
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "diagrams:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	texts, err := filepath.Glob(filepath.Join(folder, "*.mmd"))
	if err != nil {
		return err
	}
	chromium, err := servers.Find("chromium", "chromium-browser", "google-chrome")
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "diagrams-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	files := map[string]string{
		"browser.json": fmt.Sprintf(`{"executablePath": %q, "args": ["--no-sandbox"]}`, chromium), // it loads nothing but the text
		"drawing.json": asText,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(scratch, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	for _, text := range texts {
		if err := draw(ctx, scratch, text); err != nil {
			return fmt.Errorf("draw %s: %w", text, err)
		}
	}
	return nil
}

func draw(ctx context.Context, scratch, text string) error {
	drawn := filepath.Join(scratch, "drawn.svg")
	cmd := exec.CommandContext(ctx, "npm", "exec", "--yes", "--package="+drawer, "--", "mmdc", "--quiet",
		"--puppeteerConfigFile", filepath.Join(scratch, "browser.json"), "--configFile", filepath.Join(scratch, "drawing.json"),
		"--input", text, "--output", drawn)
	cmd.Env = append(os.Environ(), "PUPPETEER_SKIP_DOWNLOAD=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	picture, err := os.ReadFile(drawn)
	if err != nil {
		return err
	}
	mark, err := markOf(text)
	if err != nil {
		return err
	}
	return os.WriteFile(pictureOf(text), append(picture, mark...), 0o644) //nolint:gosec // beside the text, which a pattern has found
}

func pictureOf(text string) string { return strings.TrimSuffix(text, ".mmd") + ".svg" }

// markOf ends a picture: it says of which text it is.
func markOf(text string) (string, error) {
	content, err := os.ReadFile(text)
	return fmt.Sprintf("\n<!-- drawn by go run ./tools/diagrams from a text with the checksum %x -->\n", sha256.Sum256(content)), err
}
