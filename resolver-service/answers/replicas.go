package answers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/addresses"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/traffic"
)

const (
	replicaPatience = 2 * time.Second // with one answer of another replica
	replicaPause    = 5 * time.Second // between two questions for faults
	replicaRetry    = 2 * time.Second // between two tries of one that is not reached, at most
	mostOfReplica   = 64 << 20        // bytes in a message
)

// Replicas asks the other replicas of this cluster for what each alone knows. An answer for a replica
// has nothing of a third, so no part comes twice. Nil has no other replicas.
type Replicas struct {
	run       string // names this process
	addresses []string
	creds     credentials.TransportCredentials
	lookup    addresses.Lookup

	mu       sync.Mutex
	conns    map[string]*grpc.ClientConn // by address
	answered map[string]bool             // addresses that DNS may leave out before their replica is gone

	missing atomic.Pointer[[]*v1alpha1.MissingReplica] // of the last question for faults
}

// NewReplicas knows replicas, this one among them or not, by host:port. A name stands for all its
// addresses. creds let no server pass but a replica of this cluster.
func NewReplicas(configured []string, creds credentials.TransportCredentials) *Replicas {
	return &Replicas{
		run: rand.Text(), addresses: configured, creds: creds, lookup: addresses.System, conns: map[string]*grpc.ClientConn{}, answered: map[string]bool{},
	}
}

// Run keeps the faults that other replicas know of until ctx ends.
func (r *Replicas) Run(ctx context.Context, health *callhealth.Health) error {
	defer r.close()
	for ctx.Err() == nil {
		all, missing := askEach(ctx, r, func(ctx context.Context, conn grpc.ClientConnInterface) (string, []*v1alpha1.CallFault, error) {
			m, err := first(v1alpha1.NewInventoryClient(conn).Traffic(ctx, &v1alpha1.TrafficRequest{ForReplica: r.run}))
			return m.GetRun(), m.GetFaults(), err
		})
		if ctx.Err() == nil {
			r.missing.Store(&missing)
			health.SetOthers(slices.Concat(all...))
		}
		live.Sleep(ctx, replicaPause)
	}
	return nil
}

// AddStatus adds the replicas whose faults are not known.
func (r *Replicas) AddStatus(answer *v1alpha1.StatusResponse) {
	if r == nil {
		return
	}
	if missing := r.missing.Load(); missing != nil {
		answer.MissingReplicas = *missing
	}
}

// first reads the first message of an answer.
func first[T any](stream grpc.ServerStreamingClient[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// Name is that of this process among the replicas; empty if there are no others.
func (r *Replicas) Name() string {
	if r == nil {
		return ""
	}
	return r.run
}

// Rotations asks the other replicas which roots they and their sidecars trust.
func (r *Replicas) Rotations(ctx context.Context) (all []*v1alpha1.ShowRotationResponse, missing []*v1alpha1.MissingReplica) {
	each, missing := askEach(ctx, r, func(ctx context.Context, conn grpc.ClientConnInterface) (run string, some []*v1alpha1.ShowRotationResponse, err error) {
		stream, err := v1alpha1.NewRotationClient(conn).Show(ctx, &v1alpha1.ShowRotationRequest{ForReplica: r.run})
		err = wire.Receive(stream, err, func(m *v1alpha1.ShowRotationResponse) error {
			run, some = cmp.Or(run, m.GetRun()), append(some, m)
			return nil
		})
		return run, some, err
	})
	return slices.Concat(each...), missing
}

// askEach asks all other replicas at once. ask returns the run of the replica that answers.
func askEach[T any](ctx context.Context, r *Replicas, ask func(context.Context, grpc.ClientConnInterface) (run string, answer T, err error)) (all []T, missing []*v1alpha1.MissingReplica) {
	if r == nil {
		return nil, nil
	}
	if len(r.addresses) == 0 {
		return nil, []*v1alpha1.MissingReplica{{Why: "this replica does not know where the others are; name them by replicas.addresses in isthmus.yaml"}}
	}
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	targets, missing := r.targets(ctx)
	type reply struct {
		run    string
		answer T
		err    error
	}
	replies := make([]reply, len(targets))
	var asking sync.WaitGroup
	for i, target := range targets {
		asking.Go(func() {
			a := &replies[i]
			conn, err := r.conn(target.address)
			if err == nil {
				a.run, a.answer, err = ask(ctx, conn)
			}
			if err == nil && a.run == "" {
				err = errors.New("it is older, and does not tell what it alone knows")
			}
			a.err = err
		})
	}
	asking.Wait()
	runs := map[string]bool{r.run: true}
	for i, target := range targets {
		a := &replies[i]
		if r.note(target, a.err == nil); a.err != nil {
			if target.listed {
				missing = append(missing, &v1alpha1.MissingReplica{Address: target.address, Why: catalog.Clip(catalog.Printable(status.Convert(a.err).Message()), mostWhy)})
			}
		} else if !runs[a.run] {
			runs[a.run] = true
			all = append(all, a.answer)
		}
	}
	return all, missing
}

// mostWhy bounds a reason, in bytes.
const mostWhy = 300

// target is where a replica is, or was: DNS lists those that are ready.
type target struct {
	address string
	listed  bool
}

// targets are the replicas to ask, and the names that could not be looked up.
func (r *Replicas) targets(ctx context.Context) (all []target, missing []*v1alpha1.MissingReplica) {
	at := map[string]bool{}
	for _, address := range r.addresses {
		stands, err := addresses.Of(ctx, r.lookup, address)
		if err != nil {
			missing = append(missing, &v1alpha1.MissingReplica{Address: address, Why: err.Error()})
		}
		for _, one := range stands {
			at[one] = true
		}
	}
	r.mu.Lock()
	for address := range r.answered {
		if !at[address] {
			at[address] = false
		}
	}
	r.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(at)) {
		all = append(all, target{address, at[address]})
	}
	return all, missing
}

// note keeps a replica that answers, and forgets one that is gone.
func (r *Replicas) note(t target, answers bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if answers {
		r.answered[t.address] = true
	} else if !t.listed {
		delete(r.answered, t.address)
		if conn := r.conns[t.address]; conn != nil {
			conn.Close()
			delete(r.conns, t.address)
		}
	}
}

// conn is the connection to a replica, which the first question makes.
func (r *Replicas) conn(address string) (*grpc.ClientConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn := r.conns[address]; conn != nil {
		return conn, nil
	}
	retry := backoff.DefaultConfig
	retry.MaxDelay = replicaRetry
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(r.creds), grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostOfReplica)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: replicaPatience}))
	if err != nil {
		return nil, fmt.Errorf("replica %s: %w", address, err)
	}
	r.conns[address] = conn
	return conn, nil
}

func (r *Replicas) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for address, conn := range r.conns {
		conn.Close()
		delete(r.conns, address)
	}
}

// name is the run that answers a replica.
func (r *Replicas) name() string {
	if r == nil {
		return "alone"
	}
	return r.run
}

// ownTraffic answers another replica with what this one alone knows.
func (v *Inventory) ownTraffic(req *v1alpha1.TrafficRequest, q traffic.Query, to grpc.ServerStreamingServer[v1alpha1.TrafficResponse]) error {
	m := &v1alpha1.TrafficResponse{Run: v.Replicas.name()}
	switch {
	case req.GetForReplica() == m.GetRun(): // it is this one that asks
		return to.Send(m)
	case req.GetToUnixMs() == 0:
		m.Faults = v.Health.Own(time.Now())
		return to.Send(m)
	}
	part := v.Calling.Own(q, time.UnixMilli(req.GetToUnixMs()))
	m.FromUnixMs, m.ToUnixMs, m.WholeFromUnixMs = part.From.UnixMilli(), part.To.UnixMilli(), part.Whole.UnixMilli()
	return sendEdges(to, m, part.Edges, edgeToWire)
}

// othersTraffic is what other replicas know of calls, and which of them do not tell.
func (v *Inventory) othersTraffic(ctx context.Context, req *v1alpha1.TrafficRequest, now time.Time) ([]traffic.Part, []*v1alpha1.MissingReplica) {
	return askEach(ctx, v.Replicas, func(ctx context.Context, conn grpc.ClientConnInterface) (run string, p traffic.Part, err error) {
		ask := &v1alpha1.TrafficRequest{
			Caller: req.GetCaller(), Callee: req.GetCallee(), Cluster: req.GetCluster(), WindowMs: req.GetWindowMs(), StepMs: req.GetStepMs(),
			ForReplica: v.Replicas.run, ToUnixMs: now.UnixMilli(),
		}
		stream, err := v1alpha1.NewInventoryClient(conn).Traffic(ctx, ask)
		err = wire.Receive(stream, err, func(m *v1alpha1.TrafficResponse) error {
			run = cmp.Or(run, m.GetRun())
			p.From, p.To = time.UnixMilli(m.GetFromUnixMs()), time.UnixMilli(m.GetToUnixMs())
			if m.GetWholeFromUnixMs() != 0 {
				p.Whole = time.UnixMilli(m.GetWholeFromUnixMs())
			}
			for _, e := range m.GetEdges() {
				t, err := edgeFromWire(e)
				if err != nil {
					return err
				}
				p.Edges = append(p.Edges, t)
			}
			return nil
		})
		return run, p, err
	})
}

// othersCalls is who calls whom as other replicas know, by callee, and which of them do not tell.
func (v *Inventory) othersCalls(ctx context.Context, req *v1alpha1.CallsRequest) (map[catalog.App][]*v1alpha1.Callee, []*v1alpha1.MissingReplica) {
	all, missing := askEach(ctx, v.Replicas, func(ctx context.Context, conn grpc.ClientConnInterface) (run string, callees []*v1alpha1.Callee, err error) {
		stream, err := v1alpha1.NewInventoryClient(conn).Calls(ctx, &v1alpha1.CallsRequest{Callee: req.GetCallee(), Caller: req.GetCaller(), Seen: req.GetSeen(), ForReplica: v.Replicas.run})
		err = wire.Receive(stream, err, func(m *v1alpha1.CallsResponse) error {
			run, callees = cmp.Or(run, m.GetRun()), append(callees, m.GetCallees()...)
			return nil
		})
		return run, callees, err
	})
	by := map[catalog.App][]*v1alpha1.Callee{}
	for _, c := range slices.Concat(all...) {
		by[wire.AppOf(c.GetApp())] = append(by[wire.AppOf(c.GetApp())], c)
	}
	return by, missing
}

// addCallee adds what another replica knows of an app's callers.
func addCallee(m, other *v1alpha1.Callee) {
	if !other.GetElsewhere() {
		m.Elsewhere, m.NotObserved = false, cmp.Or(m.GetNotObserved(), other.GetNotObserved())
	}
	for _, o := range other.GetCallers() {
		if o.GetCalls() == nil {
			continue
		}
		i := slices.IndexFunc(m.Callers, func(s *v1alpha1.CallerState) bool {
			return s.GetNamespace() == o.GetNamespace() && s.GetApp() == o.GetApp() && s.GetCluster() == o.GetCluster() && s.GetRule() == o.GetRule() && (s.GetDomain() == o.GetDomain() || s.GetCalls() == nil)
		})
		if i < 0 {
			m.Callers = append(m.Callers, o)
			continue
		}
		addCalls(m.Callers[i], o.GetCalls(), o.GetLastUnixMs())
	}
	sortCallers(m)
}
