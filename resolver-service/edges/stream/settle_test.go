package stream_test

import (
	"context"
	"testing"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// After a restart the service lacks the exports that its peers will send in a moment.
func TestAClientKeepsItsViewUntilTheServiceHasHeardItsPeers(t *testing.T) {
	settled := make(chan struct{})
	s := start(t, stream.Config{Settled: settled}, "127.0.0.1:0", selection(checkout, orders))
	s.dial().send(helloOf(checkout, "")).recv() // who has no view gets what there is

	c := s.dial().send(resuming(checkout, &pb.WatchResponse{Revision: 7}))
	time.Sleep(20 * time.Millisecond)     // not for correctness: time to send what must not be sent
	s.instances(orders, "10.0.0.1:50002") // as if from a peer
	close(settled)
	// Had it been sent a view before, this would not be its first.
	m := c.recv()
	if got, _ := ready(m, orders); got != "[10.0.0.1:50002]" || m.Provisional {
		t.Errorf("the first view has orders at %s, provisional: %t", got, m.Provisional)
	}
}

func TestADrainIsConfirmedBeforeTheServiceHasHeardItsPeers(t *testing.T) {
	settled := make(chan struct{})
	s := start(t, stream.Config{Settled: settled}, "127.0.0.1:0")
	s.instances(ledger, "10.0.0.3:50002")
	had := s.dial().send(helloOf(orders, "")).recv()
	s.instances(ledger) // as if it had not reconnected yet
	hello := resuming(orders, had)
	hello.GetHello().Instance = &pb.Instance{Id: "10.0.0.1:50002", Address: "10.0.0.1:50002"}
	c := s.dial().send(hello).send(drainRequest())
	if m := c.recv(); !m.Drained || len(m.Put)+len(m.Removed) > 0 || !m.Open {
		t.Errorf("the drain is answered with %v", m)
	}
	close(settled)
	if m := c.recv(); len(m.Removed) != 1 || m.Drained {
		t.Errorf("once the service has settled: %v", m)
	}
}

func TestAViewIsProvisionalUntilTheServiceHasSettled(t *testing.T) {
	settled := make(chan struct{})
	s := start(t, stream.Config{Settled: settled}, "127.0.0.1:0", selection(checkout, orders))
	early := s.dial().send(helloOf(checkout, ""))
	first := early.recv()
	if !first.Provisional {
		t.Error("the first view is said to be whole")
	}
	again := resuming(checkout, first)
	again.GetHello().Provisional = true
	back := s.dial().send(again)
	if m := back.recv(); !m.Provisional || len(m.Put)+len(m.Removed) > 0 {
		t.Errorf("who comes back with a provisional view is sent %v", m)
	}
	s.instances(orders, "10.0.0.1:50002")
	for _, c := range []*sidecar{early, back} {
		if m := c.recv(); !m.Provisional || !says(orders, "[10.0.0.1:50002]")(m) {
			t.Errorf("a change before the service has settled: %v", m)
		}
	}
	close(settled)
	for _, c := range []*sidecar{early, back} {
		if m := c.recv(); m.Provisional || len(m.Put)+len(m.Removed) > 0 {
			t.Errorf("what tells that the service has settled is %v", m)
		}
	}
	s.instances(orders, "10.0.0.2:50002")
	if m := early.recv(); m.Provisional || !says(orders, "[10.0.0.2:50002]")(m) {
		t.Errorf("after that: %v", m)
	}
}

// A whole cluster starts for the first time: sidecars have a view before daprd is ready,
// and come back to register, all before the service has settled.
func TestAtAColdStartSidecarsFollowWhatComes(t *testing.T) {
	settled := make(chan struct{})
	s := start(t, stream.Config{Settled: settled}, anAddress(t), selection(checkout, orders))
	isReady := make(chan struct{})
	wait := func(ctx context.Context, turn func(error)) {
		select {
		case <-isReady:
			turn(nil)
		case <-ctx.Done():
		}
	}
	c := sidecarFrom(t, nameresolution.Options{Logger: quiet, Health: wait}, s.address, checkout, 50001, nil)
	c.finds(orders, "unavailable")
	close(isReady)
	sidecarOf(t, s.address, orders, 50002, nil).finds(checkout, "127.0.0.1:50001")
	c.finds(orders, "127.0.0.1:50002")

	// Once the service has settled, what it said counts: the next one that starts holds back.
	close(settled)
	s.dial().send(resuming(checkout, &pb.WatchResponse{Revision: 7})).recv() // it has noticed
	s.instances(orders, "10.0.0.1:50002")
	c.finds(orders, "10.0.0.1:50002")
	s.stop()
	next := make(chan struct{})
	start(t, stream.Config{Settled: next}, s.address, selection(checkout, orders))
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if address, err := c.ResolveID(t.Context(), orders); err != nil {
			t.Fatalf("while the service has not settled: %q, %v", address, err)
		}
	}
	close(next)
}
