package nameresolution_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// TestALookupWaitsForAClusterThatIsAsked, in a sidecar and with the service, until it has answered, or
// should have; and at most for resolveTimeout.
func TestALookupWaitsForAClusterThatIsAsked(t *testing.T) {
	for name, c := range map[string]struct {
		timeout string
		answers bool
		want    error
	}{
		"it answers": {"30s", true, nil}, "it never answers": {"30s", false, catalog.ErrUnavailable}, "it takes longer": {"100ms", false, catalog.ErrNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			need, err := s.topology.Need(t.Context(), "east")
			if err != nil {
				t.Fatal(err)
			}
			defer need.Close()
			says := func(named bool) {
				s.apply(topology.Change{Peers: []topology.PeerChange{{Cluster: "east", Lease: topology.Fresh, Put: []topology.PeerExport{{App: ledger, Allow: []catalog.Allow{{}}, Ready: 1, Named: named}}}}})
			}
			says(true)
			r := sidecarWith(t, checkout, 50003, map[string]any{"resolver": s.address, "resolveTimeout": c.timeout})
			s.apply(topology.Change{Objects: &topology.ObjectChange{Put: []catalog.Object{
				&catalog.Cluster{Name: "east", Gateways: []string{"203.0.113.7:15443"}}, &catalog.AppEndpoints{App: checkout, Endpoints: []catalog.Endpoint{{App: ledger}}},
			}}})
			got, began := make(chan error, 2), time.Now()
			for held := false; !held; time.Sleep(time.Millisecond) {
				if v, _ := r.View(); v != nil {
					_, held = v.Entries.Get(ledger)
				}
			}
			go func() { _, err := r.Find(t.Context(), ledger); got <- err }()
			go func() { got <- s.explained(checkout, ledger) }()
			if c.answers {
				time.Sleep(50 * time.Millisecond)
				says(false)
			}
			for range 2 {
				if err := <-got; !errors.Is(err, c.want) && !(c.want == catalog.ErrNotReady && errors.Is(err, catalog.ErrUnavailable)) {
					t.Errorf("got %v; want %v", err, c.want)
				}
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// explained is the error of a lookup with the service, for operators.
func (s *service) explained(caller, app catalog.App) error {
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	d, err := pb.NewResolverClient(conn).Resolve(s.t.Context(), &pb.ResolveRequest{Caller: wire.App(caller), App: wire.App(app)})
	if err != nil {
		return err
	}
	for _, o := range catalog.Outcomes() {
		if o.String() == d.GetOutcome() {
			return (&catalog.Decision{Outcome: o, Reason: d.GetReason()}).Err()
		}
	}
	return errors.New(d.GetOutcome())
}
