package operators

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
)

// kubelet is as much of one as the API server's port-forward and logs need: its pods' loopback is that
// of this machine. tests/clusters has a whole one.
type kubelet struct {
	*httptest.Server
	all      sync.WaitGroup // connections that are forwarded
	forwards chan string    // pods that a port was forwarded to
}

func startKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{forwards: make(chan string, 1000)}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("previous") == "true" {
			http.Error(w, "previous terminated container not found", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "2026-01-01T00:00:00Z log of %s, with Bearer abcdefghijklmnop in it\n", r.PathValue("pod"))
	})
	k.Server = httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		k.CloseClientConnections()
		k.Close()
		k.all.Wait()
	})
	return k
}

// port is where it listens.
func (k *kubelet) port() int { return k.Listener.Addr().(*net.TCPAddr).Port }

// portForward is the kubelet's side of Kubernetes' port-forward.
func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams := make(chan httpstream.Stream, 2)
	tunnel := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if tunnel == nil {
		return
	}
	k.forwards <- r.PathValue("pod")
	defer tunnel.Close()
	failures, data := <-streams, <-streams
	if failures.Headers().Get(core.StreamType) == core.StreamTypeData {
		failures, data = data, failures
	}
	target, err := net.Dial("tcp", "127.0.0.1:"+data.Headers().Get(core.PortHeader))
	if err != nil {
		fmt.Fprintf(failures, "error forwarding port: %v", err)
		_ = failures.Close()
		_ = data.Close()
		<-tunnel.CloseChan()
		return
	}
	k.all.Go(func() {
		_, _ = io.Copy(target, data)
		_ = target.Close()
	})
	_, _ = io.Copy(data, target)
	_ = target.Close()
	_ = failures.Close()
	_ = data.Close()
}
