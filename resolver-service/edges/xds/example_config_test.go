package xds

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // what the bootstrap has in it
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write "+exampleConfig)

// exampleConfig is what Envoy has of an example, as a static configuration that "envoy --mode
// validate -c" reads.
const exampleConfig = "../../../deploy/envoy/example-config.yaml"

const exampleComment = `# What Envoy gets from Isthmus as the gateway of cluster west, which exports shop/orders and
# shop/ledger, as a configuration that stands alone. Envoy checks it so:
# envoy --mode validate -c example-config.yaml
# In use, bootstrap.yaml gets the same by xDS, with endpoints apart. Tests write this file.
`

func TestExampleOfAGatewaysConfiguration(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, asGateway(), cluster("east"), export("orders"), export("ledger"))
		x.runs(shop("orders"), "10.0.0.1:50002", "10.0.0.2:50002")
		x.runs(shop("ledger"), "10.0.0.3:50002")
		c := x.connect(t, ingress, delta)
		c.follow(clusters)
		c.follow(listeners)
		c.follow(endpoints, "orders.shop", "ledger.shop")
		c.until("everything", func() bool {
			return len(c.have[clusters]) == 3 && len(c.have[endpoints]) == 2 && len(c.have[listeners]) == 1 && len(c.serverNames()) == 7
		})
		config := &bootstrapv3.Bootstrap{
			Node:            &corev3.Node{Id: ingress.String(), Cluster: "isthmus-gateway"},
			StaticResources: &bootstrapv3.Bootstrap_StaticResources{},
		}
		for _, name := range c.names(listeners) {
			l := &listenerv3.Listener{}
			c.read(listeners, name, l)
			if l.GetDefaultFilterChain() != nil || slices.ContainsFunc(l.GetFilterChains(), func(chain *listenerv3.FilterChain) bool {
				return len(chain.GetFilterChainMatch().GetServerNames()) == 0
			}) {
				t.Error("a server name that names no app leads somewhere")
			}
			config.StaticResources.Listeners = append(config.StaticResources.Listeners, l)
		}
		for _, name := range c.names(clusters) {
			m := &clusterv3.Cluster{}
			c.read(clusters, name, m)
			if m.GetType() == clusterv3.Cluster_EDS {
				at := &endpointv3.ClusterLoadAssignment{}
				c.read(endpoints, name, at)
				m.ClusterDiscoveryType, m.EdsClusterConfig, m.LoadAssignment = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}, nil, at
			}
			config.StaticResources.Clusters = append(config.StaticResources.Clusters, m)
		}
		if err := config.ValidateAll(); err != nil {
			t.Errorf("Envoy would refuse this: %v", err)
		}
		got := append([]byte(exampleComment), asYAML(t, config)...)
		if *update {
			if err := os.WriteFile(exampleConfig, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(exampleConfig); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what Envoy gets (%v); write it: go test ./resolver-service/edges/xds -run %s -update\n%s", exampleConfig, err, "Example", got)
		}
	})
}

// read decodes a resource that Envoy would take.
func (c *adsClient) read(k kind, name string, into interface {
	proto.Message
	ValidateAll() error
}) {
	c.t.Helper()
	if err := proto.Unmarshal(c.have[k][name], into); err != nil {
		c.t.Fatal(err)
	}
	if err := into.ValidateAll(); err != nil {
		c.t.Errorf("Envoy would refuse %s: %v", name, err)
	}
}

// asYAML writes a message as Envoy reads it, the same each time.
func asYAML(t *testing.T, m proto.Message) []byte {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	var out bytes.Buffer
	if err == nil {
		encoder := yaml.NewEncoder(&out)
		encoder.SetIndent(2)
		err = encoder.Encode(fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestEnvoysBootstrap(t *testing.T) {
	for _, name := range []string{"../../../deploy/envoy/bootstrap.yaml", exampleConfig} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := yaml.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		read, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		m := &bootstrapv3.Bootstrap{}
		if err := protojson.Unmarshal(read, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := m.ValidateAll(); err != nil {
			t.Errorf("%s: Envoy would refuse it: %v", name, err)
		}
		if id := m.GetNode().GetId(); id != ingress.String() {
			t.Errorf("%s: node %q, want %s", name, id, ingress)
		}
	}
}
