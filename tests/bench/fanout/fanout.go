// Package fanout measures how long it takes from an instance's change until the sidecars that may
// call it answer with it: a resolver service with 10,000 apps and 100,000 instances in a process of
// its own, 1,000 sidecars' resolvers connected to it, and one instance that changes its address.
//
// By turns with it, a bare gRPC server sends a like message to as many sidecars. What the service
// itself adds is the difference. It also shows what the service holds in memory and how long it
// takes to be ready after a start, with all selections in its store and all instances to take over.
package fanout

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/process"
	"github.com/isthmus-mesh/isthmus/tests/bench/harness"
)

// cluster is the name of the cluster that is measured.
const cluster = "west"

// plan is what is measured.
type plan struct {
	fleet            harness.Fleet
	streams, changes int
}

// New is the benchmark.
func New(flags *flag.FlagSet) harness.Command {
	var p plan
	flags.IntVar(&p.fleet.Apps, "apps", 10_000, "apps in the cluster")
	flags.IntVar(&p.fleet.Instances, "instances", 10, "instances of each app")
	flags.IntVar(&p.fleet.Callees, "callees", 20, "callees in each app's selection")
	flags.IntVar(&p.streams, "streams", 1_000, "connected sidecars")
	flags.IntVar(&p.changes, "changes", 150, "changes to measure")
	only := flags.String("only", "", "measure only what has this in its name, such as \"mTLS, reaches 20\"")
	return harness.Command{
		Short: "-apps=300 -streams=200 -changes=5",
		Roles: map[string]harness.Role{"service": harness.As(service), "bare": harness.As(bare)},
		Run:   func(b *harness.B) { run(b, p, *only) },
	}
}

// run measures the ordinary change, which reaches as many apps as each has callees, with ten sidecars
// each; and the worst, in which it reaches all sidecars and each is of another app, so that each gets a
// view of its own.
func run(b *harness.B, p plan, only string) {
	var all []*harness.Subject
	for _, connections := range []string{"plain text", "mTLS"} {
		for _, o := range []occasion{{p.fleet.Instances, p.fleet.Callees}, {1, p.streams}} {
			name := fmt.Sprintf("%s, reaches %d apps × %d", connections, o.callers, o.each)
			if strings.Contains(name, only) {
				all = append(all, measure(b, p, o, name, connections == "mTLS")...)
			}
		}
	}
	harness.Print(fmt.Sprintf("An instance changes; %d sidecars are connected (%d apps × %d instances × %d callees, %d changes). CPU is that of one change, all sidecars together. They run beside the service on the same cores, in a process of their own, which collects its garbage between changes. In brackets: times that of the bare server",
		p.streams, p.fleet.Apps, p.fleet.Instances, p.fleet.Callees, p.changes), all, []harness.Column{
		{Head: "ready ms", Figure: "ready", Format: "%.0f", Most: 3000}, {Head: "RSS MiB", Figure: "rss", Format: "%.1f", Most: 256},
		{Head: "first ms p50", Figure: "first", Format: "%.2f", Quantile: .5}, {Head: "median ms p50", Figure: "median", Format: "%.2f", Quantile: .5},
		{Head: "last ms p50", Figure: "last", Format: "%.2f", Quantile: .5}, {Head: "last ms p99", Figure: "last", Format: "%.2f", Quantile: .99, Most: 10},
		{Head: "CPU ms service", Figure: "cpu", Format: "%.2f", Quantile: .5}, {Head: "CPU ms sidecars", Figure: "sidecars", Format: "%.2f", Quantile: .5},
		{Head: "bytes a sidecar", Figure: "bytes", Format: "%.0f", Quantile: .5, Times: 2},
	})
}

// occasion is one way to connect the sidecars.
type occasion struct {
	each    int // sidecars of an app
	callers int // apps that may call the one that changes
}

// served is a server with its sidecars, and what was measured of it.
type served struct {
	harness.Subject
	server  *harness.Child
	reached []*nameresolution.Resolver // the sidecars that a change reaches
	n       int                        // changes so far
	flip    func(string)               // makes a change, and returns as soon as it is on its way
}

// address is where the instance that changes is since the last change.
func (s *served) address() string { return fmt.Sprintf("10.200.0.%d:%d", s.n%2+1, harness.Port) }

func (s *served) change() {
	s.n++
	s.flip(s.address())
}

// measure measures one service, which it starts and ends, and by turns a bare server.
func measure(b *harness.B, p plan, o occasion, name string, mtls bool) []*harness.Subject {
	service, bare := &served{}, &served{}
	bare.Name, service.Name, service.Beside, service.Held = "the same, a bare gRPC server", name, &bare.Subject, true
	p.fleet.Popular = o.callers
	b.Scope(func(b *harness.B) {
		at := place(b.Dir())
		harness.Progress("writing %d selections and %d instances", p.fleet.Apps, p.fleet.Apps*p.fleet.Instances)
		fill(b, at, p.fleet)
		if mtls {
			apps := []catalog.App{identity.ServiceApp("", cluster)}
			for i := range p.streams/o.each + 1 {
				apps = append(apps, harness.App(i))
			}
			at.Issue(apps...)
		}
		address := service.start(b, "service", at)
		harness.Progress("%s: the service is ready; connecting %d sidecars", name, p.streams)
		service.flip = flipper(b, at, address)
		service.connect(b, p, o, at, address)
		address = bare.start(b, "bare", bareArgument{at, o.callers})
		bare.flip = func(address string) { harness.Ask[any](bare.server, "Flip", address) }
		bare.connect(b, p, o, at, address)
		byTurns(b, p.changes, service, bare)
	})
	return []*harness.Subject{&service.Subject, &bare.Subject}
}

// start starts a server, and returns its address once it is ready.
func (s *served) start(b *harness.B, role string, argument any) (address string) {
	began := time.Now()
	s.server = b.Child(role, argument)
	address = harness.Ask[string](s.server, "Address", nil)
	s.Took("ready", time.Since(began))
	return address
}

// connect connects the sidecars, of the apps from 1 on, and waits until those that a change reaches
// have seen one.
func (s *served) connect(b *harness.B, p plan, o occasion, at place, address string) {
	s.change()
	for i := range p.streams {
		r := b.Sidecar(cluster, address, at, harness.Instance(1+i/o.each, i%o.each))
		if i < o.callers*o.each {
			s.reached = append(s.reached, r)
		}
	}
	for _, r := range s.reached {
		b.Await("a sidecar gets its view", time.Millisecond, func() {
			harness.Assert(harness.Must(r.ResolveID(b, harness.App(0))) == s.address(), "not every sidecar has seen the change")
		})
	}
}

// flipper is the one instance of app 0. Each flip is a new stream that registers it anew at another
// address, as a sidecar does that comes back.
func flipper(b *harness.B, at place, address string) func(string) {
	id := at.Identity(b, harness.App(0))
	conn := b.Dial(address, id.ClientCredentials(identity.OneOf(identity.ServiceApp("", cluster))))
	return func(address string) {
		stream := harness.Must(pb.NewResolverClient(conn).Watch(b))
		hello := &pb.Hello{App: wire.App(harness.App(0)), Instance: &pb.Instance{Id: "changing", Address: address}}
		harness.Check(stream.Send(&pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: hello}}))
	}
}

// byTurns measures the changes of several servers, one after the other. The sidecars are 1,000
// processes elsewhere. Here they are one, whose collector would stop all of them for one's garbage. So
// it works between changes, when nothing is measured.
func byTurns(b *harness.B, changes int, servers ...*served) {
	b.Pause(2 * time.Second) // the snapshot of instances is written meanwhile
	harness.Progress("%s: measuring %d changes", servers[0].Name, changes)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for n := range changes {
		if n%10 == 0 {
			runtime.GC()
		}
		for _, s := range servers {
			own, written := harness.OwnCPU(), harness.Written(s.server.PID)
			s.Took("cpu", harness.Spent(s.server.PID, func() {
				seen := s.watch(b)
				s.Took("first", seen[0])
				s.Took("median", seen[len(seen)/2])
				s.Took("last", seen[len(seen)-1])
				b.Pause(200 * time.Millisecond) // with what its garbage costs
			}))
			s.Took("sidecars", harness.OwnCPU()-own)
			s.Add("bytes", float64(harness.Written(s.server.PID)-written)/float64(len(s.reached)))
		}
	}
	for _, s := range servers {
		s.MiB("rss", harness.Resident(s.server.PID))
	}
}

// watch makes a change and asks the sidecars, as daprd asks them for each call, until all of them
// answer with the address. It returns how long each took.
func (s *served) watch(ctx context.Context) (seen []time.Duration) {
	waiting := append([]*nameresolution.Resolver(nil), s.reached...)
	began := time.Now()
	for s.change(); len(waiting) > 0; time.Sleep(200 * time.Microsecond) { // which bounds how exact the times are
		for i := 0; i < len(waiting); {
			if harness.Must(waiting[i].ResolveID(ctx, harness.App(0))) != s.address() {
				i++
				continue
			}
			seen = append(seen, time.Since(began))
			waiting[i] = waiting[len(waiting)-1]
			waiting = waiting[:len(waiting)-1]
		}
		harness.Assert(time.Since(began) < harness.Patience, "%d sidecars are without %s after %s", len(waiting), s.address(), harness.Patience)
	}
	return seen
}

// place is a directory with what the service finds when it starts: its certificates, and these files.
type place = harness.Certificates

func store(p place) string    { return filepath.Join(string(p), "isthmus.db") }
func snapshot(p place) string { return filepath.Join(string(p), "instances.json") }

// fill writes the fleet's selections into a config store, and its instances into the file from which a
// service takes over those of its former life; see snapshot.go of package stream. Only app 0 has none
// there: its one instance is the one that changes.
func fill(ctx context.Context, p place, f harness.Fleet) {
	s := harness.Must(embedded.Open(store(p)))
	harness.Write(ctx, s, f.Objects())
	harness.Check(s.Close())
	var list []map[string]any
	for i := f.Instances; i < f.Apps*f.Instances; i++ {
		one := harness.Instance(i/f.Instances, i%f.Instances)
		list = append(list, map[string]any{"namespace": one.App.Namespace, "app": one.App.ID, "id": one.ID, "address": one.Address})
	}
	text := harness.Must(json.Marshal(map[string]any{"version": 1, "revision": 1, "instances": list}))
	harness.Check(os.WriteFile(snapshot(p), text, 0o600))
}

// service is the resolver service with its store. It answers with its address once it is ready. Most of
// the fleet is not there, so instances that do not come back count for longer than the program runs.
func service(b *harness.B, at place) map[string]any {
	store := harness.Must(embedded.Open(store(at)))
	b.Cleanup(store.Close)
	s := b.NewService(harness.Config{
		Cluster: cluster, Certificates: at,
		Streams: stream.Config{Snapshot: snapshot(at), RejoinTimeout: 10 * time.Minute, MaxStreams: math.MaxInt},
	})
	s.Run(b, objects.NewFeed(store, s.Topology, harness.Log).Run, func(ctx context.Context) error {
		return process.SaveMemory(ctx, s.Topology.Ready())
	})
	return map[string]any{"Address": func() string {
		harness.Must(s.Topology.Ready().Wait(b))
		return s.Address()
	}}
}

// bareServer is the least that a server in Go can do with gRPC and the service's options. It has no
// objects, views or registry. It sends one and the same message to every sidecar that a change reaches.
// So its figures are those of gRPC, TLS, the kernel and the sidecars.
type bareServer struct {
	pb.UnimplementedResolverServer
	reached map[string]bool // app-ids

	mu      sync.Mutex
	latest  *pb.WatchResponse
	streams map[chan *pb.WatchResponse]struct{}
}

// bareArgument is what the role needs to know: the callers are the apps that a change reaches.
type bareArgument struct {
	Place   place
	Callers int
}

// bare is the process of a bareServer.
func bare(b *harness.B, argument bareArgument) map[string]any {
	id, listener := argument.Place.Identity(b, identity.ServiceApp("", cluster)), harness.Listen()
	s := &bareServer{reached: map[string]bool{}, latest: bareMessage("10.200.0.1:1", 1), streams: map[chan *pb.WatchResponse]struct{}{}}
	for i := range argument.Callers {
		s.reached[harness.App(i+1).ID] = true
	}
	server := grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(id.ServerCredentials(identity.Anyone)))...)
	pb.RegisterResolverServer(server, s)
	b.Serve(server, listener)
	return map[string]any{"Address": listener.Addr().String, "Flip": s.flip}
}

// bareMessage says where app 0 is, as the service does.
func bareMessage(address string, revision uint64) *pb.WatchResponse {
	route := catalog.LocalRoute([]string{address}, 0)
	route.Cluster, route.Weight = cluster, catalog.DefaultWeight
	entry := catalog.NewEntry(harness.App(0), catalog.TextRule("AppEndpoints shop/app-00001, spec.endpoints[20] (line 28)"), []catalog.Route{route})
	return &pb.WatchResponse{Revision: revision, Rule: "AppEndpoints shop/app-00001", Put: []*pb.ViewEntry{wire.Entry(entry)}}
}

func (s *bareServer) flip(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = bareMessage(address, s.latest.Revision+1)
	for messages := range s.streams {
		messages <- s.latest // there is room: the last change was seen everywhere
	}
}

// Watch sends the newest message, and each after it to a sidecar that a change reaches.
func (s *bareServer) Watch(to grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	hello, err := to.Recv()
	if err != nil {
		return err
	}
	messages := make(chan *pb.WatchResponse, 2)
	s.mu.Lock()
	messages <- s.latest
	if s.reached[hello.GetHello().GetApp().GetId()] {
		s.streams[messages] = struct{}{}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, messages)
	}()
	for {
		select {
		case m := <-messages:
			if err := to.Send(m); err != nil {
				return err
			}
		case <-to.Context().Done():
			return nil
		}
	}
}
