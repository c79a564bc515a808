// Package laptop makes this machine a guest of a cluster: the resolver service in this process, which dials
// out, and a sidecar before the app that runs here.
package laptop

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/invitation"
)

// Options say how to join.
type Options struct {
	Invitation         string
	App                string // "namespace/app-id", or the app-id alone; empty: the one of the invitation
	Port               int    // where the app listens on this machine
	Protocol           string // of the app, as daprd has it
	Takes              []*v1alpha1.Take
	NoTakes            bool // none, although the invitation offers some
	Daprd              string
	HTTPPort, GRPCPort int      // of the sidecar, if they are free
	Resources          []string // directories with Dapr components of the app
	Version            string
	Out                io.Writer // what the person should know
	Verbose            io.Writer // the log of service and sidecar; nil: in a file until the end
}

// guest is a laptop that joins.
type guest struct {
	Options
	name  string
	app   catalog.App
	offer *v1alpha1.Invitation
	daprd string

	dir      string
	log      io.Writer
	source   *identity.Source
	roots    string // of the host, in PEM
	host     *v1alpha1.MeetDescription
	until    time.Time
	calls    v1alpha1.GuestsClient
	relay    *relay
	resolver string // address of the service here
	objects  v1alpha1.ObjectsClient
	shown    string // what the objects were made of last
}

// Run joins, and is a guest until ctx ends, or the time of the guest is over, or the host ends it.
func Run(ctx context.Context, o Options) (err error) {
	g := &guest{Options: o}
	if err := g.check(ctx); err != nil {
		return err
	}
	if g.dir, err = os.MkdirTemp("", "isthmus-guest-"); err != nil {
		return err
	}
	defer os.RemoveAll(g.dir)
	logs := filepath.Join(g.dir, "log")
	if g.log = o.Verbose; g.log == nil {
		f, err := os.OpenFile(logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		g.log = f
	}
	if err = g.join(ctx); err == nil {
		err = g.stay(ctx)
	}
	if err != nil && ctx.Err() == nil {
		if last := tail(logs, 8); last != "" {
			fmt.Fprintf(o.Out, "the log of service and sidecar ends:\n%s\n", last)
		}
	}
	return err
}

// check looks at what can be looked at before the invitation is used.
func (g *guest) check(ctx context.Context) (err error) {
	if g.offer, err = invitation.Read(g.Invitation); err != nil {
		return err
	}
	g.name = g.offer.GetInvited()
	apps := slices.DeleteFunc(slices.Clone(g.offer.GetGuest().GetApps()), func(a string) bool {
		return g.App != "" && a != g.App && !strings.HasSuffix(a, "/"+g.App)
	})
	if len(apps) != 1 {
		return fmt.Errorf("--app %q is not one of the apps that the invitation is for, or not one alone: %s", g.App, strings.Join(g.offer.GetGuest().GetApps(), ", "))
	}
	if g.app, err = catalog.ParseApp(apps[0]); err != nil {
		return err
	}
	g.chooseTakes()
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(g.Port))
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("no app listens at %s (%w): start it there, then join again; the invitation is not used yet", at, err)
	}
	conn.Close()
	g.daprd, err = FindDaprd(g.Daprd)
	return err
}

// chooseTakes takes what the invitation offers, unless something else is wanted. What has the guest choose a
// value takes a choice.
func (g *guest) chooseTakes() {
	for _, t := range g.Takes {
		if t.GetApp() == "" {
			t.App = g.app.String()
		}
	}
	if len(g.Takes) > 0 || g.NoTakes {
		return
	}
	for _, t := range g.offer.GetGuest().GetTakes() {
		if t.GetApp() == g.app.String() && t.GetHeader().GetValue() != invitation.AnyValue {
			g.Takes = append(g.Takes, t)
		}
	}
}

// person is who joins, for the host's operators.
func person() string {
	name, machine := "somebody", "some machine"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		machine = h
	}
	return name + " at " + machine
}

// join meets the host by a certificate that says nothing but the guest's name. The one that the host's Sentry
// signs is for this process from then on.
func (g *guest) join(ctx context.Context) error {
	quiet := slog.New(slog.NewTextHandler(g.log, nil)).With("cluster", g.name)
	self := identity.ServiceApp(g.offer.GetGuest().GetNamespace(), g.name)
	first, root, err := identity.SelfSigned(identity.ID{TrustDomain: g.name, App: self})
	if err != nil {
		return err
	}
	stranger, err := g.newSource(ctx, string(root), identity.EncodePEM([]*x509.Certificate{first.Leaf}), first.PrivateKey, nil, quiet)
	if err != nil {
		return err
	}
	key, csr, err := identity.Request()
	if err != nil {
		return err
	}
	joined, err := invitation.Join(ctx, invitation.Config{
		Cluster: g.name, Namespace: g.offer.GetGuest().GetNamespace(), Domain: catalog.Domain(g.offer.GetDomain()), Identity: stranger, Log: quiet,
	}, g.Invitation, &v1alpha1.GuestChoice{App: g.app.String(), Takes: g.Takes, Csr: csr, Person: person()})
	if err != nil {
		return err
	}
	g.host, g.roots = joined.Host, joined.Host.GetRoots()
	if g.until, err = time.Parse(time.RFC3339, joined.Welcome.GetGuest().GetUntil()); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(g.Out, "words: %s\n", strings.Join(joined.Words, " "))
	if g.source, err = g.newSource(ctx, g.roots, joined.Welcome.GetCertificate(), key, func(ctx context.Context, csr []byte) ([]byte, error) {
		return g.sign(ctx, nil, csr)
	}, quiet); err != nil {
		return err
	}
	return g.dialHost()
}

// newSource is an identity of this guest that begins with a certificate, and asks for more.
func (g *guest) newSource(ctx context.Context, roots string, certificate []byte, key any, ask func(context.Context, []byte) ([]byte, error), log *slog.Logger) (*identity.Source, error) {
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the key is of another kind")
	}
	s, err := identity.New(identity.Config{Sentry: &identity.Sentry{
		Address: g.offer.GetGateways()[0], TrustAnchors: roots, First: &identity.Signed{Certificate: certificate, Key: private}, Ask: ask,
	}}, identity.ServiceApp(g.offer.GetGuest().GetNamespace(), g.name), log)
	if err == nil {
		err = s.Load(ctx)
	}
	return s, err
}

// dialHost makes the connection by which the host signs certificates, and tells what the guest has there.
func (g *guest) dialHost() error {
	conn, err := grpc.NewClient("passthrough:///"+g.host.GetCluster(), grpc.WithTransportCredentials(g.source.PeerCredentials(g.host.GetCluster())),
		grpc.WithAuthority(catalog.Domain(g.host.GetDomain()).PeerHost(g.host.GetCluster())), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (conn net.Conn, err error) { return g.dial(ctx) }))
	if err == nil {
		g.calls = v1alpha1.NewGuestsClient(conn)
	}
	return err
}

// dial connects to the first gateway that answers.
func (g *guest) dial(ctx context.Context) (conn net.Conn, err error) {
	for _, gateway := range g.host.GetGateways() {
		if conn, err = new(net.Dialer).DialContext(ctx, "tcp", gateway); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// askWithin is how long the host has for an answer.
const askWithin = 10 * time.Second

func (g *guest) sign(ctx context.Context, app *v1alpha1.App, csr []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answer, err := g.calls.Sign(ctx, &v1alpha1.SignRequest{App: app, Csr: csr})
	return answer.GetCertificate(), err
}

// stay runs service and sidecar until the end, which it tells the host.
func (g *guest) stay(ctx context.Context) (err error) {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	failed, err := g.serve(serving, served)
	defer func() {
		end()
		err = errors.Join(err, <-served)
	}()
	if err != nil {
		served <- nil
		return errors.Join(err, g.leave())
	}
	if g.relay, err = newRelay(g.dir, g.app, func(ctx context.Context, app catalog.App, csr []byte) ([]byte, error) {
		return g.sign(ctx, wire.App(app), csr)
	}); err != nil {
		return errors.Join(err, g.leave())
	}
	defer g.relay.server.Stop()
	if err = g.settle(ctx); err == nil {
		err = g.run(ctx, failed)
	}
	return errors.Join(err, g.leave())
}

// run runs the sidecar.
func (g *guest) run(ctx context.Context, failed <-chan error) error {
	s, err := g.startSidecar(ctx)
	if err != nil {
		return err
	}
	defer s.stop()
	g.say(s)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for away := 0; away < awayFor; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(g.until)): // the host may have said another time by now
			_, _ = fmt.Fprintln(g.Out, "the time of this guest is over")
			return nil
		case err := <-failed:
			return fmt.Errorf("the service on this machine has ended: %w", err)
		case <-s.ended:
			return fmt.Errorf("the sidecar has ended by itself (%v)", s.err)
		case <-look.C:
			if away++; !g.turnedAway(g.follow(ctx)) {
				away = 0
			}
		}
	}
	_, _ = fmt.Fprintf(g.Out, "cluster %s has this guest no longer: its time is over there, or an operator has deleted its Cluster object\n", g.host.GetCluster())
	return nil
}

// awayFor is how often in a row the host turns a guest away before that goes. A host that has just begun
// may not know its guests yet.
const awayFor = 5

// turnedAway tells whether the host has no such guest, after a call that failed. A host that accepts the
// certificate no longer says so by an alert of TLS, which gRPC may lose: so this asks for the alert alone.
func (g *guest) turnedAway(err error) bool {
	if err == nil || status.Code(err) == codes.FailedPrecondition {
		return err != nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin/2)
	defer cancel()
	raw, err := g.dial(ctx)
	if err != nil {
		return false
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(askWithin / 2)) // the read below says if it can't be set
	conn, _, err := g.source.PeerCredentials(g.host.GetCluster()).ClientHandshake(ctx, catalog.Domain(g.host.GetDomain()).PeerHost(g.host.GetCluster()), raw)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return err != nil && strings.Contains(err.Error(), "tls: bad certificate")
}

// leave tells the host that the guest goes. The host ends the connection, perhaps before its answer is here.
func (g *guest) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	var err error
	for left := false; !left; left = err == nil || g.turnedAway(err) || !live.Sleep(ctx, 100*time.Millisecond) {
		_, err = g.calls.Leave(ctx, &v1alpha1.LeaveRequest{})
	}
	if err != nil && !g.turnedAway(err) {
		_, _ = fmt.Fprintf(g.Out, "cluster %s could not be told that this guest goes: %s; its Cluster object there goes at %s, or by isthmus delete cluster %s\n",
			g.host.GetCluster(), status.Convert(err).Message(), g.until.Local().Format(time.TimeOnly), g.name)
	}
	return nil
}

// say tells the person what there is.
func (g *guest) say(s *sidecar) {
	takes := "it gets no calls"
	if len(g.Takes) > 0 {
		takes = "it gets calls " + invitation.Takes(g.Takes)
	}
	_, _ = fmt.Fprintf(g.Out, "%s is %s of cluster %s until %s; %s\napp:     http://127.0.0.1:%d\nsidecar: DAPR_HTTP_PORT=%d DAPR_GRPC_PORT=%d\nCtrl-C ends it\n",
		g.name, g.app, g.host.GetCluster(), g.until.Local().Format(time.TimeOnly), takes, g.Port, s.http, s.grpc)
}

// serve starts the resolver service. Without an error, served is told how it has ended.
func (g *guest) serve(ctx context.Context, served chan<- error) (failed <-chan error, err error) {
	cfg, err := resolverservice.Parse("guest.yaml", g.configuration())
	if err != nil {
		return nil, err
	}
	cfg.Self, cfg.Version = g.source, g.Version
	s := resolverservice.New(cfg, slog.New(slog.NewTextHandler(g.log, nil)).With("cluster", g.name))
	if err := s.Listen(); err != nil {
		return nil, err
	}
	conn, err := client.Dial(ctx, client.Options{Socket: g.socket()})
	if err != nil {
		return nil, err
	}
	g.resolver, g.objects = s.Addr("resolver").String(), v1alpha1.NewObjectsClient(conn)
	early := make(chan error, 1)
	go func() {
		err := s.Run(ctx)
		early <- err
		served <- err
	}()
	return early, nil
}
