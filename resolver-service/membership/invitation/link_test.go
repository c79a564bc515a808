package invitation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a cluster of a test: its store, its objects and its links, at a port that stands for
// its gateway.
type cluster struct {
	*Server
	t       *testing.T
	ca      *identitytest.CA
	store   *embedded.Store
	address string
	log     *logged
	ahead   time.Duration // of its clock
}

// logged keeps what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// newCluster makes a cluster with an authority, whose service is an app.
func newCluster(t *testing.T, name string, ca *identitytest.CA, app catalog.App) *cluster {
	t.Helper()
	c := &cluster{t: t, ca: ca, log: &logged{}}
	log := slog.New(slog.NewTextHandler(c.log, nil))
	var err error
	if c.store, err = embedded.Open(filepath.Join(t.TempDir(), "isthmus.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	top := topology.New(topology.Config{Cluster: name, Domain: catalog.DefaultDomain, Open: true}, log)
	background(t, top.Run)
	feed := objects.NewFeed(c.store, top, log)
	background(t, feed.Run)
	source, err := identity.New(ca.Config(app), app, log)
	if err == nil {
		err = source.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	c.Server = New(Config{
		Cluster: name, Domain: catalog.DefaultDomain, Gateways: []string{c.address}, Identity: source,
		Objects:  objects.NewServer(objects.Config{Cluster: name, Domain: catalog.DefaultDomain, Store: "embedded"}, c.store, feed, top, log),
		MayWrite: func(context.Context) error { return nil },
		Lacking:  func(context.Context, map[string][]string) map[string][]*v1alpha1.LackingApp { return nil },
		Dial: func(ctx context.Context, address string) (net.Conn, error) { // and nowhere else, whatever an altered address says
			if !strings.HasPrefix(address, "127.0.0.1:") {
				return nil, errors.New("no route to " + address)
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
		Now: func() time.Time { return time.Now().Add(c.ahead) }, Log: log,
	})
	server := grpc.NewServer(grpc.Creds(source.BootstrapCredentials()))
	v1alpha1.RegisterLinkingServer(server, c.Server)
	background(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, server.Stop)
		return server.Serve(l)
	})
	if _, err := top.Ready().Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// twoClusters have an authority each, and know nothing of each other.
func twoClusters(t *testing.T) (west, east *cluster) {
	t.Helper()
	return service(t, "west"), service(t, "east")
}

// service is a cluster whose service has the certificate that it should have.
func service(t *testing.T, name string) *cluster {
	t.Helper()
	return newCluster(t, name, identitytest.NewCA(t), identity.ServiceApp("", name))
}

// invite opens an invitation and returns its string.
func (c *cluster) invite(invited string, o *v1alpha1.LinkOptions) string {
	c.t.Helper()
	answer, err := c.Invite(c.t.Context(), &v1alpha1.InviteRequest{Cluster: invited, Options: o})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.GetInvitation()
}

// told is what an acceptance tells its operator.
type tellings struct {
	grpc.ServerStreamingServer[v1alpha1.LinkState]
	ctx  context.Context
	each func(*v1alpha1.LinkState)

	mu   sync.Mutex
	last *v1alpha1.LinkState
}

// Context is the operator's.
func (s *tellings) Context() context.Context { return s.ctx }

// Send takes the next state.
func (s *tellings) Send(m *v1alpha1.LinkState) error {
	s.mu.Lock()
	s.last = m
	s.mu.Unlock()
	if s.each != nil {
		s.each(m)
	}
	return nil
}

// accept accepts an invitation. each is called with each state.
func (c *cluster) accept(text string, o *v1alpha1.LinkOptions, each ...func(*v1alpha1.LinkState)) (*v1alpha1.LinkState, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	s := &tellings{ctx: ctx}
	if len(each) > 0 {
		s.each = each[0]
	}
	err := c.Accept(&v1alpha1.AcceptRequest{Invitation: text, Options: o}, s)
	return s.last, err
}

// objects are the names of the Cluster objects in the store.
func (c *cluster) objects() (names []string) {
	c.t.Helper()
	all, refused, err := c.store.List(c.t.Context())
	if err != nil || len(refused) > 0 {
		c.t.Fatal(err, refused)
	}
	for _, stored := range all {
		names = append(names, stored.Object.Key().String())
	}
	return names
}

// refusedFor checks that an error is a refusal for a reason, and that the clusters have no object.
func refusedFor(t *testing.T, err error, want Reason, clusters ...*cluster) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, c := range clusters {
		if names := c.objects(); len(names) > 0 {
			t.Errorf("%s has %v", c.cfg.Cluster, names)
		}
	}
}

// state is the last invitation of a cluster.
func (c *cluster) state() *v1alpha1.LinkState {
	c.t.Helper()
	all := c.invitations.list()
	if len(all) == 0 {
		c.t.Fatal("no invitation")
	}
	return all[0]
}

func TestAnInvitationIsForOneUse(t *testing.T) {
	west, east := twoClusters(t)
	text := east.invite("west", nil)
	done, err := west.accept(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if there := east.state(); done.GetState() != stateLinked || there.GetState() != stateLinked || fmt.Sprint(done.GetWords()) != fmt.Sprint(there.GetWords()) || len(done.GetWords()) != 4 {
		t.Errorf("west has %v, and east %v", done, there)
	}
	for c, want := range map[*cluster]string{west: "[Cluster east]", east: "[Cluster west]"} {
		if got := fmt.Sprint(c.objects()); got != want {
			t.Errorf("%s has %s, want %s", c.cfg.Cluster, got, want)
		}
	}
	second := newCluster(t, "west", identitytest.NewCA(t), identity.ServiceApp("", "west"))
	_, err = second.accept(text, nil)
	refusedFor(t, err, Used, second)
	_, err = west.accept(text, nil)
	refusedFor(t, err, Used)
	if e := east.invitations.all[string(mustParse(t, text).Id)]; !bytes.Equal(e.invitation.secret, make([]byte, secretLength)) {
		t.Error("the secret of a used invitation is still in memory")
	}
}

func mustParse(t *testing.T, text string) *invitation {
	t.Helper()
	i, err := parseInvitation(text)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestWhatAMeetingWrites(t *testing.T) {
	west, east := twoClusters(t)
	if _, err := west.accept(east.invite("west", nil), nil); err != nil {
		t.Fatal(err)
	}
	c, err := west.held(t.Context(), "east")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Gateways) != 1 || c.Gateways[0] != east.address || c.Trust != (catalog.Trust{Domain: identitytest.TrustDomain, Roots: string(east.ca.PEM())}) || c.StaleAfter != catalog.DefaultStaleAfter {
		t.Errorf("west has %+v", c)
	}
	// Once more changes nothing, and needs no --replace.
	done, err := west.accept(east.invite("west", nil), nil)
	if err != nil || done.GetResult() != "unchanged" || east.state().GetResult() == "" {
		t.Errorf("again: %v, %v", done, err)
	}
	// Another gateway does, on the side that has it, and says where nothing was written.
	east.cfg.Gateways = []string{east.address, "203.0.113.7:15443"}
	_, err = west.accept(east.invite("west", nil), nil)
	refusedFor(t, err, Exists)
	c, _ = west.held(t.Context(), "east")
	c.StaleAfter = 7 * time.Second
	if _, err := west.apply(t.Context(), &target{object: c}, false); err != nil {
		t.Fatal(err)
	}
	if done, err = west.accept(east.invite("west", nil), &v1alpha1.LinkOptions{Replace: true}); err != nil || done.GetResult() != "changed" {
		t.Fatalf("replaced: %v, %v", done, err)
	}
	if c, _ = west.held(t.Context(), "east"); len(c.Gateways) != 2 || c.StaleAfter != 7*time.Second {
		t.Errorf("replaced by %+v, want two gateways and the lease of before", c)
	}
}

func TestOneRootForBothNeedsNoRootsInTheObject(t *testing.T) {
	ca := identitytest.NewCA(t)
	west, east := newCluster(t, "west", ca, identity.ServiceApp("", "west")), newCluster(t, "east", ca, identity.ServiceApp("", "east"))
	if _, err := west.accept(east.invite("west", nil), nil); err != nil {
		t.Fatal(err)
	}
	if c, err := west.held(t.Context(), "east"); err != nil || c.Trust.Roots != "" || c.Trust.Domain == "" {
		t.Errorf("west has %+v, %v", c, err)
	}
}

func TestOutWritesNothing(t *testing.T) {
	west, east := twoClusters(t)
	out := &v1alpha1.LinkOptions{Out: true}
	denied := func(context.Context) error { return errors.New("asked for a store that is not to be written") }
	west.cfg.MayWrite, east.cfg.MayWrite = denied, denied
	done, err := west.accept(east.invite("west", out), out)
	if err != nil || done.GetResult() != told || !strings.Contains(string(done.GetObject()), east.address) {
		t.Fatal(done, err)
	}
	if there := east.state(); there.GetResult() != told || !strings.Contains(string(there.GetObject()), west.address) {
		t.Errorf("east tells %v", there)
	}
	if len(west.objects())+len(east.objects()) > 0 {
		t.Errorf("written: %v %v", west.objects(), east.objects())
	}
}

func TestNoGatewayLinksOneWay(t *testing.T) {
	west, east := twoClusters(t)
	west.cfg.Gateways = nil
	text := east.invite("west", nil)
	_, err := west.accept(text, nil)
	refusedFor(t, err, NoGateway, west, east)
	if _, err := west.accept(text, &v1alpha1.LinkOptions{NoGateway: true}); err != nil {
		t.Fatal(err)
	}
	if c, err := east.held(t.Context(), "west"); err != nil || len(c.Gateways) > 0 {
		t.Errorf("east has %+v, %v", c, err)
	}
}

func TestBothSidesWaitForTheirPersons(t *testing.T) {
	confirm := &v1alpha1.LinkOptions{Confirm: true}
	for what, c := range map[string]struct{ here, there, want string }{
		"both find the same words": {"yes", "yes", ""},
		"the accepter does not":    {"no", "yes", string(NotConfirmed)},
		"the inviter does not":     {"yes", "no", string(NotConfirmed)},
		"the accepter goes away":   {"", "yes", string(NotConfirmed)},
		"the inviter goes away":    {"yes", "", string(NotConfirmed)},
	} {
		t.Run(what, func(t *testing.T) {
			west, east := twoClusters(t)
			for side, says := range map[*cluster]string{west: c.here, east: c.there} {
				if side.limits.confirm = time.Minute; says == "" {
					side.limits.confirm = 200 * time.Millisecond
				}
			}
			say := func(side *cluster, id, says string) {
				if len(west.objects())+len(east.objects()) > 0 {
					t.Error("written before both persons have confirmed")
				}
				if says == "" {
					return
				}
				if _, err := side.Confirm(t.Context(), &v1alpha1.ConfirmRequest{Id: id, Same: says == "yes"}); err != nil {
					t.Error(err)
				}
			}
			_, err := west.accept(east.invite("west", confirm), confirm, func(s *v1alpha1.LinkState) {
				if s.GetState() != stateConfirm {
					return
				}
				if there := east.state(); there.GetState() != stateConfirm || fmt.Sprint(there.GetWords()) != fmt.Sprint(s.GetWords()) {
					t.Errorf("west shows %v, and east %v", s, there)
				}
				say(east, s.GetId(), c.there)
				say(west, s.GetId(), c.here)
			})
			if c.want != "" {
				refusedFor(t, err, Reason(c.want), west, east)
				if s := east.state(); s.GetReason() != c.want {
					t.Errorf("east has %v", s)
				}
				return
			}
			if err != nil || len(west.objects()) != 1 || len(east.objects()) != 1 {
				t.Error(err, west.objects(), east.objects())
			}
		})
	}
}

// An operator who goes away ends an acceptance only while nothing can be written yet.
func TestAnOperatorWhoGoesAway(t *testing.T) {
	west, east := twoClusters(t)
	confirm := &v1alpha1.LinkOptions{Confirm: true}
	ctx, cancel := context.WithCancel(t.Context())
	s := &tellings{ctx: ctx, each: func(*v1alpha1.LinkState) { cancel() }}
	err := west.Accept(&v1alpha1.AcceptRequest{Invitation: east.invite("west", nil), Options: confirm}, s)
	refusedFor(t, err, Interrupted, west, east)
	for end := time.Now().Add(time.Minute); east.state().GetState() != stateOpen; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the invitation is not open again: %v", east.state())
		}
	}
	if _, err := east.Revoke(t.Context(), &v1alpha1.RevokeRequest{Id: "another"}); err == nil || !strings.Contains(err.Error(), "(not-here)") {
		t.Errorf("another's invitation: %v", err)
	}
}

// An invitation lasts by the clock of the cluster that made it, whatever that of the other is. Where a
// clock is the reason, the refusal names how far they differ.
func TestClocksMayDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{-20 * time.Minute, 20 * time.Minute} {
		west, east := twoClusters(t)
		west.ahead = ahead
		if _, err := west.accept(east.invite("west", nil), nil); err != nil {
			t.Errorf("the accepter's clock is %s ahead: %v", ahead, err)
		}
	}
	west, east := twoClusters(t)
	text := east.invite("west", nil)
	east.ahead = 20 * time.Minute // the invitation has ended there
	_, err := west.accept(text, nil)
	refusedFor(t, err, Expired, west, east)
	if !strings.Contains(err.Error(), "the clock there is 20m0s ahead of this one's") {
		t.Error(err)
	}
	for theirs, want := range map[time.Duration]string{
		-20 * time.Minute: "20m0s behind this one's", 20 * time.Minute: "20m0s ahead of this one's", 30 * time.Second: "",
	} {
		err := distrust(&identity.Untimely{}, Intercepted, west.clocks(time.Now().Add(theirs).UnixMilli()))
		if err.Reason != Clocks || !strings.Contains(err.Error(), want) || want == "" && strings.Contains(err.Error(), "the clock there is") {
			t.Errorf("a certificate that is not valid now, and a clock %s ahead: %v", theirs, err)
		}
	}
	if err := distrust(errors.New("another root"), Intercepted, "the clock there is 20m0s ahead"); err.Reason != Intercepted || strings.Contains(err.Error(), "clock") {
		t.Errorf("a certificate of another root: %v", err)
	}
}
