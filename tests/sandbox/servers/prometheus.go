package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Prometheus is a running Prometheus with its data in a directory of its own.
type Prometheus struct {
	process *sandbox.Process
	address string
	client  http.Client
}

// StartPrometheus starts a Prometheus with a configuration, which may name other files of dir, and
// waits until it is ready. Its data and its log are in dir.
func StartPrometheus(ctx context.Context, dir, config string) (*Prometheus, error) {
	binary, err := sandbox.Binary("prometheus")
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("start Prometheus: %w", err)
	}
	p := &Prometheus{address: hostPort(port)}
	p.process, err = sandbox.Start(sandbox.Command{
		Name: "prometheus", Path: binary, LogDir: dir, ReadyURL: "http://" + p.address + "/-/ready",
		Args: []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + p.address},
	})
	if err != nil {
		return nil, err
	}
	return p, p.process.WaitReady(ctx)
}

// Stop asks the server to end, and waits until it has.
func (p *Prometheus) Stop(ctx context.Context) error {
	p.client.CloseIdleConnections()
	return p.process.Stop(ctx)
}

// Sample is one series of an answer.
type Sample struct {
	Metric map[string]string
	Value  [2]any // Unix time, and the value as text
}

// Query returns the series that a query has now.
func (p *Prometheus) Query(ctx context.Context, query string) ([]Sample, error) {
	var answer struct{ Result []Sample }
	err := p.get(ctx, "query?query="+url.QueryEscape(query), &answer)
	return answer.Result, err
}

// Alert is one that is pending or fires.
type Alert struct {
	Labels, Annotations map[string]string
	State               string // pending or firing
}

// Alerts returns those of now.
func (p *Prometheus) Alerts(ctx context.Context) ([]Alert, error) {
	var answer struct{ Alerts []Alert }
	err := p.get(ctx, "alerts", &answer)
	return answer.Alerts, err
}

func (p *Prometheus) get(ctx context.Context, path string, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/api/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask Prometheus: %w", err)
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("ask Prometheus for %s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("ask Prometheus for %s: %s", path, answer.Error)
	}
	return nil
}
