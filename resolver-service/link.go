package resolverservice

import (
	"cmp"
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/invitation"
)

// buildLink makes what connects this cluster with others by invitations.
func (s *Service) buildLink() {
	cfg := invitation.Config{
		Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace, Domain: catalog.Domain(s.cfg.Domain), Replica: s.cfg.replica(),
		Gateways: s.cfg.advertised(s.Addr("gateway")), Identity: s.identity, Objects: s.resolver.objects, MayWrite: s.mayWrite,
		Lacking: s.lacking, Log: s.log,
	}
	if sentry := s.cfg.Identity.Sentry; sentry != nil {
		cfg.Sentry = cmp.Or(sentry.Namespace, "default")
	}
	s.link = invitation.New(cfg)
}

// advertised are the addresses at which other clusters reach the gateway, as far as that is known:
// those that are configured, or the one where it listens.
func (c *Config) advertised(at net.Addr) []string {
	if len(c.Gateway.Advertise) > 0 {
		return c.Gateway.Advertise
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok || tcp.IP.IsUnspecified() || tcp.IP.IsLoopback() && !c.Development.Loopback {
		return nil
	}
	return []string{netip.AddrPortFrom(tcp.AddrPort().Addr().Unmap(), tcp.AddrPort().Port()).String()}
}

// lacking are the apps whose sidecars trust none of a cluster's roots.
func (s *Service) lacking(ctx context.Context, cluster string, roots []string) (all []*v1alpha1.LackingApp) {
	exported := map[catalog.App][]string{}
	_ = everyApp(ctx, s.topology, func(some []*v1alpha1.AppState) error {
		for _, a := range some {
			app, err := wire.ParseApp(a.GetApp())
			if err == nil {
				exported[app] = a.GetExportedTo()
			}
		}
		return nil
	})
	var last *v1alpha1.LackingApp
	for _, one := range s.resolver.stream.Sidecars(func(catalog.App) bool { return true }) {
		if !identity.LacksRoots(one.Anchors, roots) {
			continue
		}
		if last == nil || last.GetApp().GetNamespace() != one.App.Namespace || last.GetApp().GetId() != one.App.ID {
			last = &v1alpha1.LackingApp{App: wire.App(one.App)}
			all = append(all, last)
		}
		last.Sidecars++
		last.Meets = last.Meets || one.LeadsTo(cluster) || check.Exported(exported[one.App], cluster)
	}
	return all
}

// Bounds of a meeting's messages: the largest has roots.
const meetingRequest = 128 << 10

// buildLinking makes the server that an invited cluster's resolver service reaches.
func (i *ingress) buildLinking(s *Service, at net.Addr) {
	i.invited = authz.NewDispatcher(at)
	i.linking = s.access.NewServer(authz.At(authz.AtInvitation), s.identity.MeetingCredentials(), grpc.MaxConcurrentStreams(1), grpc.MaxRecvMsgSize(meetingRequest))
	v1alpha1.RegisterLinkingServer(i.linking, s.link)
}

func (i *ingress) serveLinking(ctx context.Context) error {
	return edge.ServeGRPC(ctx, i.invited, i.linking)
}
