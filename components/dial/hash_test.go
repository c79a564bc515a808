package dial

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// keptOf is where calls go of routes with so many instances each, in all of these shares.
func keptOf(instances []string, weights ...uint32) *kept {
	var usable []usableRoute
	var offers []catalog.Offer
	for i, weight := range weights {
		r := usableRoute{state: &routeState{}, route: &route{Route: catalog.Route{RouteSpec: catalog.RouteSpec{Cluster: fmt.Sprint("cluster-", i)}}}}
		for _, name := range instances {
			e := &endpoint{endpointKey: endpointKey{address: fmt.Sprint(name, " of ", i)}}
			r.candidates = append(r.candidates, candidate{instance: &instance{}, endpoints: []*endpoint{e}})
		}
		usable = append(usable, r)
		offers = append(offers, catalog.Offer{RouteSpec: catalog.RouteSpec{Weight: weight}, Ramp: 1, Capacity: 1})
	}
	return keep(usable, offers)
}

func (k *kept) where(key int) string {
	_, c := k.pick(uint64(key) * 0x9E3779B97F4A7C15)
	return c.endpoints[0].address
}

func TestKeysSpreadByWeightAndMoveOnlyWhereTheyMust(t *testing.T) {
	const keys = 20_000
	names := []string{"a", "b", "c", "d", "e"}
	for _, weights := range [][]uint32{{1}, {3, 1}, {1, 1, 2}} {
		all, without := keptOf(names, weights...), keptOf(names[:4], weights...)
		total := uint32(0)
		for _, w := range weights {
			total += w
		}
		count := map[string]int{}
		for key := range keys {
			at := all.where(key)
			count[at]++
			if next := without.where(key); next != at && !strings.HasPrefix(at, "e ") {
				t.Fatalf("weights %v: key %d moves from %s to %s, though only e is lost", weights, key, at, next)
			}
		}
		for at, n := range count {
			var route int
			fmt.Sscanf(at[strings.LastIndex(at, " "):], "%d", &route)
			want := keys * float64(weights[route]) / float64(total) / float64(len(names))
			if math.Abs(float64(n)-want) > 0.15*want {
				t.Errorf("weights %v: %s has %d keys, want about %.0f", weights, at, n, want)
			}
		}
	}
}

func TestOneKeyOverrunsNoInstance(t *testing.T) {
	k := keptOf([]string{"a", "b", "c", "d", "e", "f", "g", "h"}, 1)
	for range 800 { // all under way at once
		_, c := k.pick(42)
		c.endpoints[0].calls.Add(1)
	}
	for _, c := range k.routes[0].candidates {
		if n := c.calls(); n > 126 {
			t.Errorf("%s has %d calls under way of 800 at 8 instances, want at most 1.25 times its share", c.endpoints[0].address, n)
		}
	}
}

func TestAKeyGoesToTheNextRouteWhereItsOwnIsFull(t *testing.T) {
	k := keptOf([]string{"a", "b"}, 1, 1, 1)
	const key = 7
	first, _ := k.pick(key)
	for i := range first.candidates {
		first.candidates[i].endpoints[0].calls.Store(1000)
	}
	if second, c := k.pick(key); second == first || c == nil {
		t.Errorf("a key whose route is full goes to %v of cluster %s again", c, second.route.Cluster)
	}
}

// headerOf reads a header of a request.
func headerOf(m any, name string) string {
	var request *internalv1.InternalInvokeRequest
	switch m := m.(type) {
	case *internalv1.InternalInvokeRequestStream:
		request = m.GetRequest()
	case *internalv1.InternalInvokeRequest:
		request = m
	}
	for key, list := range request.GetMetadata() {
		if strings.EqualFold(key, name) {
			return list.GetValues()[0]
		}
	}
	return ""
}

// whoServer answers with its name.
type whoServer struct {
	internalv1.UnimplementedServiceInvocationServer
	name string
}

func (s *whoServer) CallLocal(context.Context, *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	return &internalv1.InternalInvokeResponse{Status: &internalv1.Status{Message: s.name}}, nil
}

func (s *whoServer) CallLocalStream(stream grpc.BidiStreamingServer[internalv1.InternalInvokeRequestStream, internalv1.InternalInvokeResponseStream]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return stream.Send(&internalv1.InternalInvokeResponseStream{Response: &internalv1.InternalInvokeResponse{Status: &internalv1.Status{Message: s.name}}})
}

func TestCallsWithOneKeyGoToOneInstanceOverClusters(t *testing.T) {
	w := newTestDialer(t)
	w.Header = headerOf
	gateways := map[string]*gateway{}
	var near, far []string
	for i := range 6 {
		name := fmt.Sprint("instance-", i)
		gateways[name] = startGateway(t, func(s *grpc.Server) { internalv1.RegisterServiceInvocationServer(s, &whoServer{name: name}) })
		if i%2 == 0 {
			near = append(near, gateways[name].Address)
		} else {
			far = append(far, gateways[name].Address)
		}
	}
	west, east := localRoute(near...), localRoute(far...)
	east.Cluster, east.Local = "east", false
	publish := func(hash catalog.Hash) {
		e := catalog.NewEntry(orders, catalog.Rule{}, []catalog.Route{west, east})
		e.Own = &catalog.Own{Hash: hash}
		w.views.Store(&catalog.View{
			Entries:  catalog.Table[*catalog.Entry]{}.With(catalog.Edit[*catalog.Entry]{App: orders, Value: e}),
			Gateways: &catalog.Gateways{Domain: catalog.DefaultDomain},
		})
	}
	publish(catalog.Hash{Header: "x-user"})
	client := internalv1.NewServiceInvocationClient(w.dial(t))
	request := func(user string) *internalv1.InternalInvokeRequest {
		return &internalv1.InternalInvokeRequest{Metadata: map[string]*internalv1.ListStringValue{"X-User": {Values: []string{user}}}}
	}
	ways := map[string]func(ctx context.Context, user string) (string, error){
		"unary": func(ctx context.Context, user string) (string, error) {
			answer, err := client.CallLocal(ctx, request(user))
			return answer.GetStatus().GetMessage(), err
		},
		"stream": func(ctx context.Context, user string) (string, error) {
			stream, err := client.CallLocalStream(ctx)
			if err != nil {
				return "", err
			}
			if err := stream.Send(&internalv1.InternalInvokeRequestStream{Request: request(user)}); err != nil && err != io.EOF {
				return "", err
			}
			answer, err := stream.Recv()
			return answer.GetResponse().GetStatus().GetMessage(), err
		},
		"metadata": func(ctx context.Context, user string) (string, error) {
			answer, err := client.CallLocal(metadata.AppendToOutgoingContext(ctx, "x-user", user), &internalv1.InternalInvokeRequest{})
			return answer.GetStatus().GetMessage(), err
		},
	}
	at := func(how, user string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		who, err := ways[how](ctx, user)
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	var users []string
	for i := range 40 {
		users = append(users, fmt.Sprint("user-", i))
	}
	// whereAll awaits that all ways agree, twice: an instance may be connected in between.
	whereAll := func(gone string) map[string]string {
		t.Helper()
		var last map[string]string
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			where, used, same := map[string]string{}, map[string]bool{}, true
			for _, user := range users {
				where[user] = at("unary", user)
				used[where[user]] = true
				same = same && at("stream", user) == where[user] && at("metadata", user) == where[user]
			}
			same, last = same && maps.Equal(where, last), where
			if wanted := len(gateways); same && (gone == "" && len(used) == wanted || gone != "" && len(used) == wanted-1 && !used[gone]) {
				return where
			}
			if time.Now().After(deadline) {
				t.Fatalf("users are at %v, the same by each way: %t", where, same)
			}
		}
	}
	before := whereAll("")
	lost := before[users[0]]
	gateways[lost].stop()
	after := whereAll(lost)
	moved := 0
	for _, user := range users {
		if before[user] != after[user] {
			moved++
			if before[user] != lost {
				t.Errorf("%s moves from %s to %s, though %s was lost", user, before[user], after[user], lost)
			}
		}
	}
	t.Logf("%d of %d users move with one of %d instances", moved, len(users), len(gateways))

	publish(catalog.Hash{Source: "shop/checkout"})
	for deadline := time.Now().Add(time.Minute); ; {
		var all []string
		for _, user := range users {
			all = append(all, at("stream", user))
		}
		if slices.Sort(all); all[0] == all[len(all)-1] {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the calls of one caller are at %v", slices.Compact(all))
		}
	}
}

func TestAStreamThatNobodySendsOnIsCountedOut(t *testing.T) {
	w := newTestDialer(t)
	w.Header = headerOf
	gw := startGateway(t, func(s *grpc.Server) { internalv1.RegisterServiceInvocationServer(s, &whoServer{}) })
	e := catalog.NewEntry(orders, catalog.Rule{}, []catalog.Route{localRoute(gw.Address)})
	e.Own = &catalog.Own{Hash: catalog.Hash{Header: "x-user"}}
	w.views.Store(&catalog.View{
		Entries:  catalog.Table[*catalog.Entry]{}.With(catalog.Edit[*catalog.Entry]{App: orders, Value: e}),
		Gateways: &catalog.Gateways{Domain: catalog.DefaultDomain},
	})
	conn := w.dial(t)
	if _, err := internalv1.NewServiceInvocationClient(conn).CallLocal(t.Context(), &internalv1.InternalInvokeRequest{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := internalv1.NewServiceInvocationClient(conn).CallLocalStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); err == nil {
		t.Error("a stream of a call that was given up receives")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.channels {
		for deadline := time.Now().Add(time.Minute); c.calls.Load() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d calls are counted as under way", c.calls.Load())
			}
		}
	}
}
