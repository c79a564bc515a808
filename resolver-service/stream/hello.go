package stream

import (
	"fmt"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// maxRevision is the highest revision from which a service that is started counts on:
// it leaves room for ever. One beyond it, as a client that lies has brought about, is
// no reason to refuse anybody.
const maxRevision = 1 << 62

// maxInstanceID is how long an instance's ID may be.
const maxInstanceID = 256

// hello is a client's first message, checked.
type hello struct {
	app      catalog.App
	instance *catalog.Instance // nil to watch without being one
	revision uint64
	known    *known // until the first message is sent
	keeps    bool   // it has a view that a service had settled for
}

// parseHello checks a first message. Its errors are those of gRPC.
func parseHello(req *opening) (*hello, error) {
	m := req.GetHello()
	if m == nil {
		if req.GetDrain() != nil {
			return nil, status.Error(codes.FailedPrecondition, "drain before hello: the first message must be a hello")
		}
		return nil, status.Error(codes.InvalidArgument, "the first message is neither hello nor drain; is the client newer than the service?")
	}
	app, err := wire.ParseApp(m.App)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "hello: %v", err)
	}
	h := &hello{app: app, revision: m.Revision, keeps: m.Revision > 0 && !m.Provisional, known: req.known}
	if m.Instance != nil {
		if h.instance, err = parseInstance(app, m.Instance); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "hello: %v", err)
		}
	}
	return h, nil
}

func parseInstance(app catalog.App, m *pb.Instance) (*catalog.Instance, error) {
	address, err := netip.ParseAddrPort(m.Address)
	if err != nil {
		return nil, fmt.Errorf("instance address %q: want ip:port, such as \"10.0.0.1:50002\"", m.Address)
	}
	address = netip.AddrPortFrom(address.Addr().Unmap(), address.Port())
	i := &catalog.Instance{ID: m.Id, App: app, Address: address, Draining: m.Draining}
	return i, checkInstance(i)
}

// checkInstance tells whether others could reach an instance.
func checkInstance(i *catalog.Instance) error {
	if err := i.App.Check(); err != nil {
		return err
	}
	if i.ID == "" || len(i.ID) > maxInstanceID {
		return fmt.Errorf("instance id of %d bytes; want 1 to %d", len(i.ID), maxInstanceID)
	}
	switch ip := i.Address.Addr(); {
	case !ip.IsValid() || ip.IsUnspecified():
		return fmt.Errorf("instance address %q names no host; want the IP that others reach, see advertise", i.Address)
	case ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("instance address %q is no address of one host", i.Address)
	case ip.Zone() != "":
		return fmt.Errorf("instance address %q has a zone, which other hosts can't use", i.Address)
	case i.Address.Port() == 0:
		return fmt.Errorf("instance address %q has no port", i.Address)
	}
	return nil
}
