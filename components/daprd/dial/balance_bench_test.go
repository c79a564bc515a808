package dial

import (
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/balancer"
)

// turns is round_robin's choice, without what gRPC adds.
type turns struct {
	conns []balancer.SubConn
	next  atomic.Uint32
}

func (r *turns) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: r.conns[r.next.Add(1)%uint32(len(r.conns))]}, nil
}

// BenchmarkPick is one call's pick and its end: of round_robin, and of the policy.
func BenchmarkPick(b *testing.B) {
	names, _ := east("10.0.0.1:1", "10.0.0.2:1")
	f := names.fleet("east")
	var plain, watched turns
	for _, address := range []string{"10.0.0.1:1", "10.0.0.2:1"} {
		g := f.use(address)
		defer g.leave()
		plain.conns = append(plain.conns, &watchedConn{})
		watched.conns = append(watched.conns, &watchedConn{gate: g, done: func(balancer.DoneInfo) { g.end() }})
	}
	for name, p := range map[string]balancer.Picker{"round_robin": &plain, "watched": &picker{&watched}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, err := p.Pick(balancer.PickInfo{})
					if err != nil {
						b.Fatal(err)
					}
					if r.Done != nil {
						r.Done(balancer.DoneInfo{})
					}
				}
			})
		})
	}
}
