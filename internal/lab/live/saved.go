package live

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// modules are the scripts of the page, each after those that it imports.
func modules() []string {
	return []string{"words.js", "summaries.js", "charts.js", "notes.js", "lanes.js", "panels.js", "lab.js", "story.js", "beside.js", "trace.js", "replay.js", "verdict.js", "compare.js", "guest.js", "app.js"}
}

// Save writes recordings as one file that a browser opens without a server: the page itself, with
// its scripts and styles inside. It loads nothing, and its policy lets it load nothing.
func Save(w io.Writer, recordings ...Recording) error {
	data, err := packed(recordings)
	if err != nil {
		return err
	}
	document, err := fs.ReadFile(page, "page/index.html")
	if err != nil {
		return fmt.Errorf("save recordings: %w", err)
	}
	styles, err := joined("lib/uPlot.css", "style.css")
	if err != nil {
		return err
	}
	library, err := joined("lib/uPlot.js")
	if err != nil {
		return err
	}
	script, err := bundled()
	if err != nil {
		return err
	}
	head := fmt.Sprintf("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src %s; script-src %s %s; base-uri 'none'; form-action 'none'\">\n"+
		"<style>%s</style>\n", allowed(styles), allowed(library), allowed(script), styles)
	end := fmt.Sprintf("<script type=\"application/gzip\" id=\"recordings\">%s</script>\n<script>%s</script>\n<script type=\"module\">%s</script>\n</body>", data, library, script)
	loaded := regexp.MustCompile(`(?m)^<(?:script|link) [^>]*(?:src|href)="[a-zA-Z/]+\.(?:css|js)"[^>]*>(?:</script>)?\n`)
	text := loaded.ReplaceAllString(string(document), "")
	text = strings.Replace(text, "</head>", head+"</head>", 1)
	text = strings.Replace(text, "</body>", end, 1)
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("save recordings: %w", err)
	}
	return nil
}

// packed is recordings as the page unpacks them: JSON, compressed, in base64. Of the JSON of many leases
// some tenth is left.
func packed(recordings []Recording) (string, error) {
	var all bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &all)
	zipped := gzip.NewWriter(text)
	if err := errors.Join(json.NewEncoder(zipped).Encode(recordings), zipped.Close(), text.Close()); err != nil {
		return "", fmt.Errorf("save recordings: %w", err)
	}
	return all.String(), nil
}

// allowed is how a policy names a text that may be in the file.
func allowed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func joined(files ...string) (string, error) {
	var all bytes.Buffer
	for _, file := range files {
		content, err := fs.ReadFile(page, path.Join("page", file))
		if err != nil {
			return "", fmt.Errorf("save recordings: %w", err)
		}
		all.Write(content)
		all.WriteByte('\n')
	}
	return all.String(), nil
}

// bundled is all modules in one: each is a function of its own, which returns what it exports.
func bundled() (string, error) {
	imported := regexp.MustCompile(`(?m)^import (\{[^}]*\}) from '\./([a-z]+)\.js';$`)
	exported := regexp.MustCompile(`(?m)^export (const|function|class) (\w+)`)
	var all strings.Builder
	for _, file := range modules() {
		text, err := joined(file)
		if err != nil {
			return "", err
		}
		var names []string
		for _, found := range exported.FindAllStringSubmatch(text, -1) {
			names = append(names, found[2])
		}
		text = imported.ReplaceAllString(text, "const $1 = of_$2;")
		text = exported.ReplaceAllString(text, "$1 $2")
		fmt.Fprintf(&all, "const of_%s = (() => {\n%s\nreturn { %s };\n})();\n", strings.TrimSuffix(file, ".js"), text, strings.Join(names, ", "))
	}
	return all.String(), nil
}
