package stream_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// Three sidecars agree that they don't reach east. They lose their service and report again to
// the next one. Then one of them reaches east.
func TestSidecarsTellWhatTheyDoNotReach(t *testing.T) {
	told := make(chan string, 1000)
	cfg := stream.Config{Unreachable: func(cluster, why string) { told <- strings.TrimSpace(cluster + " " + why) }}
	await := func(what string, is func(string) bool) {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case got := <-told:
				if is(got) {
					return
				}
			case <-end:
				t.Fatal("not told: ", what)
			}
		}
	}
	ended := func(s string) bool { return strings.HasPrefix(s, "east 3 of 3 callers don't reach it; ") }
	s := start(t, cfg, anAddress(t))
	var sidecars []*daprd
	for i, app := range []catalog.App{checkout, orders, ledger} {
		d := sidecarOf(t, s.address, app, 50001+i, nil)
		d.ReportUnreached([]nameresolution.Unreached{{Cluster: "east", Gateway: "", Since: time.Now().Add(-time.Minute), Why: "no answer\xff"}})
		sidecars = append(sidecars, d)
	}
	await("that three agree", ended)
	u := s.server.Unreached()["east"]
	if u.By != 3 || u.Callers != 3 || time.Since(u.Since) < time.Minute || !strings.HasSuffix(u.Why, ": no answer?") {
		t.Errorf("it says %+v", u)
	}
	s.stop()
	again := start(t, cfg, s.address)
	await("that three agree, by the next service", ended)
	sidecars[1].ReportUnreached(nil)
	await("that one reaches it", func(s string) bool { return s == "east" })
	if u, ok := again.server.Unreached()["east"]; !ok || u.By != 2 {
		t.Errorf("it says %+v", u)
	}
}

func TestAReportThatIsTooLargeEndsTheStream(t *testing.T) {
	s := start(t, stream.Config{}, "127.0.0.1:0")
	for want, m := range map[codes.Code]*pb.Unreached{
		codes.InvalidArgument:   {All: make([]*pb.UnreachedGateway, 65)},
		codes.ResourceExhausted: {All: []*pb.UnreachedGateway{{Cluster: "east", Why: strings.Repeat("x", 65<<10)}}},
	} {
		for i := range m.All {
			if m.All[i] == nil {
				m.All[i] = &pb.UnreachedGateway{Cluster: "east"}
			}
		}
		c := s.dial().send(helloOf(checkout, ""))
		c.recv()
		c.send(&pb.WatchRequest{Request: &pb.WatchRequest_Unreached{Unreached: m}})
		if got := c.refused().Code(); got != want {
			t.Errorf("ended with %s, want %s", got, want)
		}
	}
}
