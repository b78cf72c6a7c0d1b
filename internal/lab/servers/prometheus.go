package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
)

// Prometheus is one that runs, with a configuration of its caller's.
type Prometheus struct {
	// URL is where it answers.
	URL string
	runner
}

// StartPrometheus starts a Prometheus on a file of configuration.
func StartPrometheus(ctx context.Context, k *Supervisor, config string) (*Prometheus, error) {
	program, err := Find("prometheus")
	if err != nil {
		return nil, &MissingError{What: err.Error(), How: "apt-get install prometheus brings it"}
	}
	p := new(Prometheus)
	p.runner, err = Launch(ctx, k, Spec{
		Name: "prometheus", Program: program, Ready: p.ready,
		Configure: func(folder string, port int) (args, env []string, err error) {
			p.URL = "http://" + Loopback(port)
			return []string{
				"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(folder, "data"),
				"--web.listen-address=" + Loopback(port), "--log.level=warn",
			}, nil, nil
		},
	})
	return p, err
}

func (p *Prometheus) ready(ctx context.Context, _ int) error {
	_, err := p.get(ctx, "/-/ready")
	return err
}

// Query evaluates an expression as of now, and returns how many series it has.
func (p *Prometheus) Query(ctx context.Context, expression string) (series int, err error) {
	body, err := p.get(ctx, "/api/v1/query?"+url.Values{"query": {expression}}.Encode())
	if err != nil {
		return 0, fmt.Errorf("evaluate %s: %w", expression, err)
	}
	var answer struct {
		Data struct {
			ResultType string            `json:"resultType"`
			Result     []json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Errorf("evaluate %s: %w", expression, err)
	}
	return len(answer.Data.Result), nil
}

// Targets is what it says of those it reads, with the error of the last scrape of each.
func (p *Prometheus) Targets(ctx context.Context) (string, error) {
	said, err := p.get(ctx, "/api/v1/targets?state=active")
	return string(said), err
}

func (p *Prometheus) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("it answers %s: %s", response.Status, body)
	}
	return body, err
}
