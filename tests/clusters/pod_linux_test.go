package clusters

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// TestAPodRuns tries the ground that the other tests stand on: two pods, and their service.
func TestAPodRuns(t *testing.T) {
	need(t)
	n := network.New(1)
	ends(t, n.Close)
	c := newCluster(t, n, "west", 1)
	app := compile(t, "./app")
	c.load(t, pack(t, pauseImage, app, "/app", "pause"))
	c.load(t, pack(t, image("app"), app, "/app"))
	c.kubectl(t, "create deployment one --replicas=2 --image="+image("app"))
	c.kubectl(t, "expose deployment one --port=80 --target-port=8080")
	c.kubectl(t, "rollout status --timeout=5m deployment/one")

	pods := strings.Fields(c.kubectl(t, "get pods -l app=one -o jsonpath={.items[*].metadata.name}"))
	if len(pods) != 2 {
		t.Fatalf("%q, want two pods", pods)
	}
	client := c.client(t)
	client.Transport.(*http.Transport).DisableKeepAlives = true
	url := "http://" + c.kubectl(t, "get service one -o jsonpath={.spec.clusterIP}") + "/who"
	for _, pod := range pods {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			response, err := client.Get(url)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if text, err := io.ReadAll(response.Body); err != nil || !strings.HasSuffix(string(text), pod) {
				return fmt.Errorf("the service answers %q, %v; want %s", text, err, pod)
			}
			return nil
		})
	}
}
