package xds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// madeUp are names that no app has.
func madeUp(from, to int) (names []string) {
	for i := from; i < to; i++ {
		names = append(names, fmt.Sprintf("made-up-%d", i))
	}
	return names
}

// refused wants a client's stream to end, for a limit that the error names.
func (c *adsClient) refused(want string) {
	c.t.Helper()
	for range c.answers {
	}
	if status.Code(c.ended) != codes.ResourceExhausted || !strings.Contains(c.ended.Error(), want) {
		c.t.Errorf("the stream ended with %v; want ResourceExhausted with %q", c.ended, want)
	}
}

func padded(size int) *corev3.Node {
	n := node(shop("checkout"))
	n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewStringValue(strings.Repeat("a", size))}}
	return n
}

func TestAClientThatAsksForTooMuchIsToldTheLimit(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
		for want, ask := range map[string]func(c *adsClient){
			"a request has more than 50000 names of resources":       func(c *adsClient) { c.follow(endpoints, madeUp(0, maxNames+1)...) },
			"a resource name has 256 bytes; at most 255 are allowed": func(c *adsClient) { c.follow(endpoints, strings.Repeat("a", 256)) },
			"the node has 262": func(c *adsClient) {
				c.node = padded(maxNode)
				c.follow(endpoints, "orders.shop")
			},
		} {
			c := x.connect(t, shop("checkout"), delta)
			ask(c)
			c.refused(want)
		}
		send := func(url, nonce string) *adsClient {
			c := x.connect(t, shop("checkout"), delta)
			var err error
			if delta {
				err = c.delta.Send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: url, ResponseNonce: nonce})
			} else {
				err = c.state.Send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: url, ResponseNonce: nonce})
			}
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		send(strings.Repeat("a", 1025), "").refused("type_url has 1025 bytes; at most 1024 are allowed")
		send(endpoints.url(), strings.Repeat("a", 1025)).refused("response_nonce has 1025 bytes; at most 1024 are allowed")
		if !delta {
			return
		}
		c := x.connect(t, shop("checkout"), delta)
		c.follow(endpoints, madeUp(0, maxNames)...)
		c.ask(endpoints, madeUp(maxNames, maxNames+1), nil, nil)
		c.refused("follows more than 50000 names of one type")

		// Names that it leaves without having followed them.
		c = x.connect(t, shop("checkout"), delta)
		c.mute = true
		c.follow(endpoints, "*")
		c.next()
		for i := range 2 {
			c.ask(endpoints, nil, madeUp(i*maxNames, (i+1)*maxNames), nil)
		}
		c.refused("follows more than 50000 names of one type")
	})
}

// Many streams of one app take neither all room nor all names from the clients of others.
func TestTheStreamsOfOneAppHaveTheirShare(t *testing.T) {
	x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
	x.runs(shop("orders"), "10.0.0.1:50002")
	const each = 40_000
	for i := range 2 {
		c := x.connect(t, shop("other"), true)
		c.follow(endpoints, madeUp(i*each, (i+1)*each)...)
		c.next()
	}
	c := x.connect(t, shop("other"), true)
	c.follow(endpoints, madeUp(2*each, 3*each)...)
	c.refused("the clients of shop/other follow more than 100000 different names")

	same := x.connect(t, shop("other"), true)
	same.follow(endpoints, madeUp(0, each)...) // which count once
	same.next()
	good := x.connect(t, shop("checkout"), true)
	good.follow(endpoints, "orders.shop")
	good.until("orders", func() bool { return len(good.endpointsOf("orders.shop")) == 1 })
}

func TestTheStreamsOfAnAppAreBounded(t *testing.T) {
	c := newClients(4)
	another := func(app string) *stream { return &stream{client: client{app: shop(app)}} }
	first := another("checkout")
	for _, st := range []*stream{first, another("checkout")} {
		if err := c.add(st); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.add(another("checkout")); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "shop/checkout has 2 streams") {
		t.Errorf("a third stream of an app: %v", err)
	}
	for _, app := range []string{"a", "b"} {
		if err := c.add(another(app)); err != nil {
			t.Error(err)
		}
	}
	if err := c.add(another("c")); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "4 streams are open") {
		t.Errorf("a fifth stream: %v", err)
	}
	c.remove(first)
	if err := c.add(another("checkout")); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}

// What a client sends is not kept beyond its own bounds: no node, no names of unknown types, and
// of its words only the first.
func TestRequestsAreNotKept(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		const streams = 30
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
		x.runs(shop("orders"), "10.0.0.1:50002")
		spaces := strings.Repeat(" ", 200<<10)
		before := heap()
		for range streams {
			c := x.connect(t, shop("checkout"), delta)
			c.node = padded(1 << 10)
			c.node.UserAgentName = "agent" + spaces
			c.refuse[endpoints] = "no" + spaces
			names := slices.Repeat([]string{strings.Repeat("n", maxName)}, 10_000)
			c.follow(endpoints, "orders.shop")
			c.next()
			m := proto.Message(&discoveryv3.DiscoveryRequest{TypeUrl: "unknown", ResourceNames: names, ErrorDetail: &statusv1.Status{Message: spaces}})
			if delta {
				m = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: "unknown", ResourceNamesSubscribe: names}
			}
			var err error
			if delta {
				err = c.delta.SendMsg(m)
			} else {
				err = c.state.SendMsg(m)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.refuse[endpoints] = ""
			c.node = nil
			c.follow(clusters, "orders.shop") // after which all of it was taken
			c.until("clusters", func() bool { return len(c.have[clusters]) == 1 })
		}
		if each := (heap() - before) / streams; each > 150<<10 {
			t.Errorf("%d KiB for each stream, its client and its connection", each>>10)
		} else {
			t.Logf("%d KiB for each stream, its client and its connection", each>>10)
		}
	})
}

// FuzzRequest compares the decoding of requests with protobuf's own.
func FuzzRequest(f *testing.F) {
	for _, m := range []proto.Message{
		&discoveryv3.DiscoveryRequest{VersionInfo: "7", Node: node(shop("checkout")), ResourceNames: []string{"a", "b"}, TypeUrl: "t", ResponseNonce: "n", ErrorDetail: &statusv1.Status{Code: 3, Message: "no"}},
		&discoveryv3.DeltaDiscoveryRequest{Node: node(shop("checkout")), TypeUrl: "t", ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"}, InitialResourceVersions: map[string]string{"c": "1", "d": ""}, ResponseNonce: "n"},
	} {
		text, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(false, text)
		f.Add(true, text)
	}
	f.Fuzz(func(t *testing.T, delta bool, raw []byte) {
		got, node, err := decode(raw, delta)
		want := &request{}
		var problem *statusv1.Status
		var id string
		if delta {
			var m discoveryv3.DeltaDiscoveryRequest
			if proto.Unmarshal(raw, &m) != nil || err != nil {
				return // we look into less, and have bounds
			}
			problem, id = m.GetErrorDetail(), m.GetNode().GetId()
			want.url, want.nonce, want.subscribe, want.unsubscribe, want.known = m.GetTypeUrl(), m.GetResponseNonce(), m.GetResourceNamesSubscribe(), m.GetResourceNamesUnsubscribe(), m.GetInitialResourceVersions()
		} else {
			var m discoveryv3.DiscoveryRequest
			if proto.Unmarshal(raw, &m) != nil || err != nil {
				return
			}
			problem, id = m.GetErrorDetail(), m.GetNode().GetId()
			want.url, want.nonce, want.names, want.version = m.GetTypeUrl(), m.GetResponseNonce(), m.GetResourceNames(), m.GetVersionInfo()
		}
		if (got.problem != "") != (problem != nil) {
			t.Errorf("problem %q of %v", got.problem, problem)
		}
		if n, err := decodeNode(node); err == nil && len(id) > 0 && len(n.GetId()) == 0 {
			t.Errorf("node %v, want %q", n, id)
		}
		got.problem = ""
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("decoded %+v, want %+v", got, want)
		}
	})
}
