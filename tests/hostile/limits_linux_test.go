package hostile

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// fewDescriptors has services run with so many descriptors at most.
func fewDescriptors(t *testing.T, most int) {
	t.Helper()
	binary := programstest.Path(t, "isthmus")
	wrapper := filepath.Join(t.TempDir(), "isthmus")
	if err := os.WriteFile(wrapper, fmt.Appendf(nil, "#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", most, binary), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ISTHMUS_ISTHMUS", wrapper)
}

// TestH4aSilentConnectionsEndAndTakeNobodysDescriptors: more of them than the service has
// descriptors, to the resolver's listener, and to it through the gateway.
func TestH4aSilentConnectionsEndAndTakeNobodysDescriptors(t *testing.T) {
	needs(t, "isthmus")
	fewDescriptors(t, 1024)
	for _, name := range []string{"resolver", "gateway _resolver"} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil)
			others := s.honestCalls(t)
			before := usageOf(t, s.Process)
			doors := s.doors(t)
			d := doors[slices.IndexFunc(doors, func(d door) bool { return d.name == name })]
			a := d.attack(t)
			a.open(2600, func(net.Conn) { time.Sleep(time.Millisecond) })
			others.goOn(t, 3)
			if strings.Contains(logged(t, s.Process), "too many open files") {
				t.Error("descriptors ran out before limits were reached")
			}
			t.Logf("%d connections, %d refused; before %s, now %s", len(a.conns), a.refused.Load(), before, usageOf(t, s.Process))
			a.allEnd()
			returns(t, s.Process, before)
		})
	}
}

// TestNamesThatClientsMakeUpCostLittle: by xDS, of each client as many as it may follow.
func TestNamesThatClientsMakeUpCostLittle(t *testing.T) {
	s := newStage(t, nil)
	others := s.honestCalls(t)
	before := usageOf(t, s.Process)
	refused := 0
	for client := range 20 {
		names := make([]string, 50_000)
		for i := range names {
			names[i] = fmt.Sprintf("app-%d.of-%d", i, client)
		}
		_, err := following(t.Context(), s.own(t, "mallory").client(t, s.xds, ""), "mallory", names...)
		if status.Code(err) == codes.ResourceExhausted {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	others.goOn(t, 3)
	after := usageOf(t, s.Process)
	t.Logf("before %s; with 1,000,000 names, of %d clients refused, %s", before, refused, after)
	if refused == 0 {
		t.Error("no client was refused")
	}
	if grown := after.resident - before.resident; grown > mostGrown {
		t.Errorf("it took %d MiB more, want at most %d", grown/mebi, mostGrown/mebi)
	}
}

// TestH4bStreamsThatAreNotReadCostLittle: each says that it knows 95,000 apps, all of which the
// service would have to tell it to forget.
func TestH4bStreamsThatAreNotReadCostLittle(t *testing.T) {
	s := newStage(t, nil)
	others := s.honestCalls(t)
	before := usageOf(t, s.Process)
	forgetPeak(t, s.Process)
	hello := helloOf(app("mallory"), 95_000)
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 40 {
		stream, err := v1alpha1.NewResolverClient(s.own(t, "mallory").client(t, s.Resolver, "")).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sending.Go(func() { _ = stream.Send(hello) }) // it may be refused, or not be read for now
	}
	others.goOn(t, 20)
	after := usageOf(t, s.Process)
	t.Logf("before %s; with 40 streams %s", before, after)
	if grown := after.peak - before.resident; grown > mostGrown {
		t.Errorf("it took %d MiB more, want at most %d", grown/mebi, mostGrown/mebi)
	}
}

// TestM2NobodyFloodsTheLog: thousands of calls that are refused, and of registrations that take
// turns, by one sidecar.
func TestM2NobodyFloodsTheLog(t *testing.T) {
	s := newStage(t, nil)
	before := lines(t, s.Process)
	mallory := s.own(t, "mallory").client(t, s.Resolver, "")
	north := s.peer(t, "north").client(t, s.Gateway, resolverName)
	ctx := meshtest.Within(t, meshtest.Patience)
	var calling sync.WaitGroup
	for _, call := range []func(int) error{
		func(int) error { // refused: no operator
			_, err := v1alpha1.NewStatusClient(mallory).Status(ctx, &v1alpha1.StatusRequest{})
			return err
		},
		func(int) error { return renewAs(ctx, north, "east") }, // refused: another cluster
		func(int) error { // refused: another app
			stream, err := watch(ctx, mallory, app("orders"), "")
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		func(n int) error { // a registration that takes over from the one before, and is held
			stream, err := watchAs(ctx, mallory, app("mallory"), fmt.Sprint(n%2), "127.0.0.1:4")
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		calling.Go(func() {
			for n := range 500 {
				_ = call(n) // refused, which other tests hold
			}
		})
	}
	calling.Wait()
	grown := lines(t, s.Process) - before
	t.Logf("%d lines", grown)
	if grown > 200 {
		t.Errorf("2000 calls made %d lines in the log, want at most 200", grown)
	}
}
