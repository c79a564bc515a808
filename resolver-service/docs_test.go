package resolverservice

import (
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

func serviceDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/service.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// firstCells are the names in the first column of the tables under a heading.
func firstCells(docs, heading string) []string {
	_, section, _ := strings.Cut(docs, "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

func compare(t *testing.T, what string, documented, real []string) {
	t.Helper()
	slices.Sort(real)
	for _, name := range real {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/reference/service.md says nothing of the %s %s", what, name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(real, name) {
			t.Errorf("docs/reference/service.md has a %s %s that there is not", what, name)
		}
	}
}

func TestTheDocsHaveEveryKeyOfTheConfiguration(t *testing.T) {
	compare(t, "key", firstCells(serviceDocs(t), "Configuration"), strict.Paths(&Config{}))
}

func TestTheDocsHaveEveryMetric(t *testing.T) {
	cfg := answering(t, "127.0.0.1:0", "dns: {forward: '"+resolverOf(t, nil)+"'}\n")
	cfg.Listen.Consul, cfg.Consul.Anonymous, cfg.Listen.XDS = "127.0.0.1:0", "shop/checkout", "127.0.0.1:0"
	west := start(t, cfg, nil)
	west.apply(clusterAt("east", west.Addr("gateway"), "2s")) // a peer, though not a good one
	west.sidecar(orders, "10.0.0.1:50002")
	conn, err := net.Dial("tcp", west.Addr("gateway").String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("not a hello\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	dig{t: t, at: west.Addr("dns")}.short(ordersName)
	answer, err := http.Get("http://" + west.Addr("consul").String() + "/v1/agent/self")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	documented := firstCells(serviceDocs(t), "Metrics")
	// These are there only once something has happened that this test does not bring about.
	later := []string{"isthmus_peer_last_word_seconds", "isthmus_stream_refused_total", "isthmus_certificate_expires_timestamp_seconds", "isthmus_certificates_failing",
		"isthmus_source_ready", "isthmus_source_failing_seconds", "isthmus_source_instances", "isthmus_source_refused",
		"isthmus_peer_info", "isthmus_peer_tunnels", "isthmus_peer_tunnel_streams", "isthmus_refused_calls_total", "isthmus_call_results_total", "isthmus_call_retries_total", "isthmus_call_duration_seconds", "isthmus_gateway_export_connections_open", "isthmus_gateway_export_connections_total", "isthmus_gateway_export_bytes_total"}
	west.within("a refusal of the gateway, and a link to the peer", func() bool {
		_, body := west.get("/metrics")
		return strings.Contains(body, "isthmus_gateway_refusals_total") && strings.Contains(body, "isthmus_peer_state") && strings.Contains(body, "isthmus_check_findings")
	})
	_, body := west.get("/metrics")
	var real []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (isthmus_\w+)`).FindAllStringSubmatch(body, -1) {
		real = append(real, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) counter`).FindAllStringSubmatch(body, -1) {
		if !strings.HasSuffix(m[1], "_total") {
			t.Errorf("OpenMetrics has another name for the counter %s; end it in _total", m[1])
		}
	}
	for _, name := range later {
		if !slices.Contains(real, name) {
			real = append(real, name)
		}
	}
	compare(t, "metric", documented, real)
}
