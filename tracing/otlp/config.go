package otlp

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Config says where spans go and how many traces are begun. The zero Config leaves
// both to OpenTelemetry's environment variables.
type Config struct {
	OTLP *Exporter `yaml:"otlp,omitempty" json:"otlp,omitempty"`

	// SampleRatio is the part of the traces begun here that is sampled, 0 to 1. Traces
	// begun elsewhere keep what was decided there. Absent: OTEL_TRACES_SAMPLER, or all.
	SampleRatio *float64 `yaml:"sampleRatio,omitempty" json:"sampleRatio,omitempty"`
}

// Exporter is a receiver of spans by OTLP over gRPC.
type Exporter struct {
	// Endpoint is http://host:port for plain text, https://host:port for TLS, or
	// host:port alone, in plain text, for a receiver on this machine.
	Endpoint string `yaml:"endpoint" json:"endpoint"`

	// HeadersFile has a name=value per line, such as an API key. It is read again when it changes.
	HeadersFile string `yaml:"headersFile,omitempty" json:"headersFile,omitempty" file:""`
}

// Check returns the mistakes in the configuration, reading no file.
func (c Config) Check() error {
	if r := c.SampleRatio; r != nil && !(*r >= 0 && *r <= 1) {
		return &strict.Error{Path: "sampleRatio", What: fmt.Sprintf("%v is out of bounds", *r), Fix: "write a number from 0 to 1"}
	}
	if c.OTLP == nil {
		return nil
	}
	_, err := c.OTLP.url()
	return strict.Below("otlp", err).Err()
}

// url is the endpoint with its scheme.
func (e *Exporter) url() (string, error) {
	if e.Endpoint == "" {
		return "", &strict.Error{Path: "endpoint", What: "is missing", Fix: "write one such as 127.0.0.1:4317 or https://otlp.example:4317"}
	}
	text := e.Endpoint
	if !strings.Contains(text, "://") {
		if !onThisMachine(text) {
			return "", &strict.Error{Path: "endpoint", What: fmt.Sprintf("%q is not on this machine", text), Fix: fmt.Sprintf("write http://%s for plain text or https://%[1]s for TLS", text)}
		}
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", strict.Below("endpoint", fmt.Errorf("%q: %w", e.Endpoint, err))
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
		return "", &strict.Error{Path: "endpoint", What: fmt.Sprintf("%q is no address", e.Endpoint), Fix: "write host:port, http://host:port or https://host:port"}
	}
	return text, nil
}

func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // the error is another: see url
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// headers are those of the headers file, which is followed.
type headers struct {
	text  string
	pairs map[string]string
}

// readHeaders reads the headers file. Its errors don't quote it: it holds secrets.
func (e *Exporter) readHeaders(old *headers) (*headers, error) {
	text, err := os.ReadFile(e.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("headersFile: %w", err)
	}
	if old != nil && old.text == string(text) {
		return old, nil
	}
	pairs := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.ToLower(strings.TrimSpace(name)); !ok || name == "" || strings.ContainsAny(name, " \t:") {
			return nil, fmt.Errorf("headersFile %s: line %d: want name=value", e.HeadersFile, n)
		}
		pairs[name] = strings.TrimSpace(value)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("headersFile %s: %w", e.HeadersFile, err)
	}
	if len(pairs) == 0 { // it may be half-written
		return nil, fmt.Errorf("headersFile %s has no header; write name=value on a line, or leave it out", e.HeadersFile)
	}
	return &headers{string(text), pairs}, nil
}

// Look tells whether the headers file can be used as it is.
func (e *Exporter) Look() error {
	if e == nil || e.HeadersFile == "" {
		return nil
	}
	_, err := e.readHeaders(nil)
	return err
}
