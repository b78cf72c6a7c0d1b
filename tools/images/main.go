// Command images asks the registries for the digest of each image in images.lock.yml and
// writes it there, beside its tag. docker-compose.yml takes its images from that file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

const (
	// each is how long one image may take.
	each = 30 * time.Second

	lockedHeader = `# The images of docker-compose.yml and of the build: a tag, and the digest that it had
# when "go run ./tools/images" was run. That command renews the digests;
# "go run ./tools/images -tags" removes them, for images that were built locally.
`
	tagsHeader = `# The images of docker-compose.yml and of the build. "go run ./tools/images" asks the
# registries for the digest of each tag and writes it here. It has not been run for this
# file: there are tags alone, and a tag can be moved. It has been tested against a
# registry of its own tests, and not against the public ones.
`
)

func main() {
	path := flag.String("file", "images.lock.yml", "file that names the images")
	tags := flag.Bool("tags", false, "remove the digests and ask no registry")
	flag.Parse()
	if err := run(*path, *tags); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// run writes the file only when all images were found.
func run(path string, tags bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	resolve, header := digest, lockedHeader
	if tags {
		resolve, header = func(context.Context, string) (string, error) { return "", nil }, tagsHeader
	}
	locked, err := lock(ctx, string(content), resolve)
	if err != nil {
		return err
	}
	_, body, ok := strings.Cut(locked, "services:\n")
	if !ok {
		return fmt.Errorf("%s: has no line \"services:\"", path)
	}
	return os.WriteFile(path, []byte(header+"services:\n"+body), 0o644) //nolint:gosec // it is no secret
}

// quoted is an image as the file names it: a tag, and maybe a digest.
func quoted() *regexp.Regexp {
	return regexp.MustCompile(`"([a-z0-9][a-z0-9.:/_-]*:[a-zA-Z0-9][a-zA-Z0-9._-]*)(@sha256:[0-9a-f]{64})?"`)
}

// lock replaces the digest of each image in a text; resolve returns an empty one where
// there is to be none.
func lock(ctx context.Context, text string, resolve func(ctx context.Context, image string) (string, error)) (string, error) {
	var failed []error
	locked := quoted().ReplaceAllStringFunc(text, func(found string) string {
		image := quoted().FindStringSubmatch(found)[1]
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		digest, err := resolve(ctx, image)
		if err != nil {
			failed = append(failed, fmt.Errorf("resolve %s: %w", image, err))
		}
		if digest != "" {
			image += "@" + digest
		}
		return `"` + image + `"`
	})
	return locked, errors.Join(failed...)
}
