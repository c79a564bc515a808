package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what codec embeds
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// codec leaves responses as they are: clients look into them as little as they can.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if raw, ok := v.(*[]byte); ok {
		*raw = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// fleet is the clients, each with a connection of its own.
type fleet struct {
	size    size
	conns   []*grpc.ClientConn
	stop    context.CancelFunc
	running sync.WaitGroup
	bytes   atomic.Int64
	err     atomic.Pointer[error]

	mu      sync.Mutex
	waiting string // the resource that is to come
	left    int    // clients that lack it
	last    time.Time
	done    chan struct{}
}

func connect(ctx context.Context, address string, s size) (*fleet, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &fleet{size: s, stop: stop}
	ready := make(chan struct{}, s.Clients)
	const atOnce = 50 // that get their first responses
	waiting := 0
	for i := range s.Clients {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})))
		if err != nil {
			f.close()
			return nil, err
		}
		f.conns = append(f.conns, conn)
		if waiting++; waiting > atOnce {
			if err := f.await(ctx, ready); err != nil {
				f.close()
				return nil, err
			}
			waiting--
		}
		f.running.Go(func() {
			if err := f.client(ctx, conn, i, ready); ctx.Err() == nil {
				f.err.Store(&err)
			}
		})
	}
	for range waiting {
		if err := f.await(ctx, ready); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (f *fleet) await(ctx context.Context, done <-chan struct{}) error {
	for {
		select {
		case <-done:
			return nil
		case <-time.After(time.Second):
			if err := f.err.Load(); err != nil {
				return *err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fleet) close() {
	f.stop()
	for _, c := range f.conns {
		c.Close()
	}
	f.running.Wait()
}

// client follows its services, and says when it has all of them. It returns why its stream ends.
func (f *fleet) client(ctx context.Context, conn *grpc.ClientConn, i int, ready chan<- struct{}) error {
	stream, err := conn.NewStream(ctx, &discoveryv3.AggregatedDiscoveryService_ServiceDesc.Streams[1], discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName)
	if err != nil {
		return err
	}
	follows := f.size.follows(i)
	first := &discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: fmt.Sprintf("bench/client-%d", i)}, TypeUrl: endpointType}
	for _, service := range follows {
		first.ResourceNamesSubscribe = append(first.ResourceNamesSubscribe, name(service))
	}
	if err := stream.SendMsg(first); err != nil {
		return err
	}
	missing := len(follows)
	for {
		var raw []byte
		if err := stream.RecvMsg(&raw); err != nil {
			return err
		}
		f.bytes.Add(int64(len(raw)))
		nonce, names := look(raw)
		if missing > 0 {
			if missing -= len(names); missing <= 0 {
				ready <- struct{}{}
			}
		} else {
			f.got(names)
		}
		if err := stream.SendMsg(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: endpointType, ResponseNonce: nonce}); err != nil {
			return err
		}
	}
}

// look reads the nonce of a DeltaDiscoveryResponse and the names of its resources.
func look(raw []byte) (nonce string, names []string) {
	for len(raw) > 0 {
		field, kind, n := protowire.ConsumeTag(raw)
		value, m := protowire.ConsumeBytes(raw[n:])
		if kind != protowire.BytesType || m < 0 {
			return nonce, names
		}
		switch field {
		case 2:
			for len(value) > 0 {
				inner, kind, n := protowire.ConsumeTag(value)
				m := protowire.ConsumeFieldValue(inner, kind, value[n:])
				if inner == 3 {
					text, _ := protowire.ConsumeBytes(value[n:])
					names = append(names, string(text))
				}
				value = value[n+m:]
			}
		case 5:
			nonce = string(value)
		}
		raw = raw[n+m:]
	}
	return nonce, names
}

// expect has the clients that follow a service wait for its change.
func (f *fleet) expect(service int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting, f.left, f.done = name(service), f.followers(service), make(chan struct{})
}

func (f *fleet) followers(service int) (n int) {
	if f.size.Each == 0 {
		return f.size.Clients
	}
	for client := range f.size.Clients {
		first := client * f.size.Each % f.size.Services
		if at := (service - first + f.size.Services) % f.size.Services; at < f.size.Each {
			n++
		}
	}
	return n
}

func (f *fleet) got(names []string) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range names {
		if n != f.waiting {
			continue
		}
		if f.left--; f.left == 0 {
			f.last = now
			close(f.done)
		}
	}
}

// wait returns when the last client had the change.
func (f *fleet) wait(ctx context.Context) (time.Time, error) {
	f.mu.Lock()
	done, left := f.done, f.left
	f.mu.Unlock()
	if left > 0 {
		if err := f.await(ctx, done); err != nil {
			return time.Time{}, err
		}
	} else if f.followers(0) == 0 {
		return time.Now(), nil
	}
	return f.last, nil
}
