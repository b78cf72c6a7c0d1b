package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// manifests are the kinds of manifest that an image may have; an index comes first,
// which covers all platforms.
const manifests = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, " +
	"application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

// locate is the URL of the manifest of an image, by Docker's rules: an image that
// names no host is on Docker Hub, and a registry on the loopback speaks plain HTTP.
func locate(image string) string {
	colon := strings.LastIndex(image, ":")
	name, tag := image[:colon], image[colon+1:]
	host, repository, ok := strings.Cut(name, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, repository = "registry-1.docker.io", name
		if !ok {
			repository = "library/" + name
		}
	}
	scheme := "https"
	if bare, _, err := net.SplitHostPort(host); err == nil && (bare == "localhost" || net.ParseIP(bare).IsLoopback()) {
		scheme = "http"
	}
	return fmt.Sprintf("%s://%s/v2/%s/manifests/%s", scheme, host, repository, tag)
}

// digest asks the registry of an image for its digest, anonymously.
func digest(ctx context.Context, image string) (string, error) {
	where := locate(image)
	status, header, err := head(ctx, where, "")
	if err != nil {
		return "", err
	}
	if status == http.StatusUnauthorized {
		token, err := anonymous(ctx, header.Get("WWW-Authenticate"))
		if err != nil {
			return "", err
		}
		if status, header, err = head(ctx, where, token); err != nil {
			return "", err
		}
	}
	found := header.Get("Docker-Content-Digest")
	if status != http.StatusOK || !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(found) {
		return "", fmt.Errorf("HEAD %s: %d with the digest %q", where, status, found)
	}
	return found, nil
}

func head(ctx context.Context, where, token string) (status int, header http.Header, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, where, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", manifests)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	return response.StatusCode, response.Header, response.Body.Close()
}

// anonymous gets the token that a registry asks for, which needs no account.
func anonymous(ctx context.Context, challenge string) (string, error) {
	asked := make(url.Values)
	for _, part := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(challenge, -1) {
		asked.Set(part[1], part[2])
	}
	realm := asked.Get("realm")
	if asked.Del("realm"); realm == "" || !strings.HasPrefix(challenge, "Bearer ") {
		return "", fmt.Errorf("the registry asks for %q, want a bearer token", challenge)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, realm+"?"+asked.Encode(), http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	var granted struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	const most = 1 << 20
	if err := json.NewDecoder(io.LimitReader(response.Body, most)).Decode(&granted); err != nil || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %w", realm, response.Status, err)
	}
	return cmp.Or(granted.Token, granted.AccessToken), nil
}
