package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	digestOfOne = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	digestOfOld = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// registry has one image, team/one:1.0, for clients with its token.
func registry(t *testing.T) (host string) {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("scope") != "repository:team/one:pull" || r.URL.Query().Get("service") != "here" {
			http.Error(w, "another scope", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"token":"granted","access_token":"granted"}`) //nolint:errcheck // the client notices
	})
	mux.HandleFunc("HEAD /v2/team/one/manifests/1.0", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer granted" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+server.URL+`/token",service="here",scope="repository:team/one:pull"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.oci.image.index.v1+json") {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Docker-Content-Digest", digestOfOne)
	})
	mux.HandleFunc("HEAD /v2/team/odd/manifests/1.0", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Docker-Content-Digest", "md5:1")
	})
	return strings.TrimPrefix(server.URL, "http://")
}

func write(t *testing.T, image string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "images.lock.yml")
	if err := os.WriteFile(path, []byte("# old\nservices:\n  one: {image: \""+image+"\"} # kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestDigestsAreRenewed(t *testing.T) {
	image := registry(t) + "/team/one:1.0"
	for _, before := range []string{image, image + "@" + digestOfOld, image + "@" + digestOfOne} {
		path := write(t, before)
		if err := run(path, false); err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, path), lockedHeader+"services:\n  one: {image: \""+image+"@"+digestOfOne+"\"} # kept\n"; got != want {
			t.Errorf("%s became\n%s, want\n%s", before, got, want)
		}
		if err := run(path, true); err != nil {
			t.Fatal(err)
		}
		if got, want := read(t, path), tagsHeader+"services:\n  one: {image: \""+image+"\"} # kept\n"; got != want {
			t.Errorf("without digests it is\n%s, want\n%s", got, want)
		}
	}
}

func TestTheLockStaysWhereAnImageIsNotFound(t *testing.T) {
	host := registry(t)
	for _, image := range []string{host + "/team/two:1.0", host + "/team/one:2.0", host + "/team/odd:1.0", "127.0.0.1:1/team/one:1.0"} {
		path := write(t, image+"@"+digestOfOld)
		before := read(t, path)
		if err := run(path, false); err == nil || !strings.Contains(err.Error(), "resolve "+image) {
			t.Errorf("%s: %v, want an error that names it", image, err)
		}
		if got := read(t, path); got != before {
			t.Errorf("%s: the lock became\n%s", image, got)
		}
	}
}

func TestImagesAreWhereDockerLooksForThem(t *testing.T) {
	for image, want := range map[string]string{
		"mysql:9.7":                    "https://registry-1.docker.io/v2/library/mysql/manifests/9.7",
		"team/one:1":                   "https://registry-1.docker.io/v2/team/one/manifests/1",
		"quay.io/coreos/etcd:v3.5.30":  "https://quay.io/v2/coreos/etcd/manifests/v3.5.30",
		"registry.example:5000/one:1":  "https://registry.example:5000/v2/one/manifests/1",
		"127.0.0.1:5000/one:1":         "http://127.0.0.1:5000/v2/one/manifests/1",
		"localhost:5000/team/one:1-rc": "http://localhost:5000/v2/team/one/manifests/1-rc",
	} {
		if got := locate(image); got != want {
			t.Errorf("%s is at %s, want %s", image, got, want)
		}
	}
}

// The file that is committed is one that the command has written.
func TestTheCommittedLockIsOfThisCommand(t *testing.T) {
	committed := read(t, "../../images.lock.yml")
	path := filepath.Join(t.TempDir(), "images.lock.yml")
	if err := os.WriteFile(path, []byte(committed), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(path, true); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != committed && !strings.HasPrefix(committed, lockedHeader) {
		t.Errorf("it is\n%s, want\n%s", committed, got)
	}
}
