package resolverservice

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// TestEveryEdgeIsInTheTable holds that a folder with an edge.go is known to the service.
func TestEveryEdgeIsInTheTable(t *testing.T) {
	files, err := filepath.Glob("edges/*/edge.go")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	table, err := os.ReadFile("edges.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Base(filepath.Dir(file))
		if folder != "edge" && strings.Contains(string(text), "edge.Edge {") && !strings.Contains(string(table), folder+".Edge(") {
			t.Errorf("%s describes an edge, and edges.go has no line for it", file)
		}
	}
}

// TestAnEdgeIsAFolderAndALine holds that what describes an edge is all that the service needs.
func TestAnEdgeIsAFolderAndALine(t *testing.T) {
	restored, ended := false, make(chan struct{})
	cfg := configOf(t, "west", nil)
	cfg.moreEdges = []edge.Edge{{
		Name: "hello", Listen: edge.At("hello", "127.0.0.1:0"), Claim: edge.Claim{Default: 10},
		Build: func(host edge.Host) (edge.Part, error) {
			if host.Cluster.Name != "west" || host.Listen.Connections != 10 || host.Views.Topology == nil || !strings.HasSuffix(host.Listen.Directory, "hello-west") {
				t.Errorf("host %+v", host)
			}
			serve := func(ctx context.Context) error {
				defer close(ended)
				defer context.AfterFunc(ctx, func() { host.Listen.Listener.Close() })()
				for {
					conn, err := host.Listen.Listener.Accept()
					if err != nil {
						return nil
					}
					_, _ = io.WriteString(conn, "hello")
					conn.Close()
				}
			}
			return edge.Part{
				Restore: func(context.Context) error { restored = true; return nil },
				Run:     serve,
				Status: func(answer *v1alpha1.StatusResponse) {
					answer.Sources = append(answer.Sources, &v1alpha1.SourceStatus{Name: "hello"})
				},
				Ready: func() (reasons, notes []string) { return nil, []string{"hello: all is well"} },
			}, nil
		},
	}}
	west := start(t, cfg, nil)
	conn, err := net.Dial("tcp", west.Addr("hello").String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if said, err := io.ReadAll(conn); string(said) != "hello" || err != nil || !restored {
		t.Errorf("said %q, %v; restored: %t", said, err, restored)
	}
	if code, body := west.get("/readyz"); code != http.StatusOK || !strings.Contains(body, "note: hello: all is well") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	told := false
	for _, source := range west.status().GetSources() {
		told = told || source.GetName() == "hello"
	}
	if !told {
		t.Error("the status has nothing of the edge")
	}
	if err := west.stop(); err != nil {
		t.Error(err)
	}
	<-ended
}

func TestPartsRunTogether(t *testing.T) {
	waits := func(ctx context.Context) error { <-ctx.Done(); return nil }
	fails := func(context.Context) error { return net.ErrClosed }
	if err := edge.Together(waits, fails, waits)(t.Context()); err != net.ErrClosed {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := edge.Together(waits, waits)(ctx); err != nil {
		t.Errorf("got %v", err)
	}
}
