package main

import (
	"sync/atomic"

	"google.golang.org/grpc"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// told counts what a server of exports says.
type told struct {
	exports atomic.Int64 // that were sent
	firsts  atomic.Int64 // first sets that are complete
}

// sent is what was said so far.
type sent struct{ Exports, Firsts int64 }

func (t *told) load() sent { return sent{t.exports.Load(), t.firsts.Load()} }

// watch counts what is sent on one stream.
func (t *told) watch(server any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	return handle(server, &countedStream{ServerStream: ss, told: t})
}

type countedStream struct {
	grpc.ServerStream
	told     *told
	complete bool // of the goroutine that sends
}

// SendMsg sends a message, and counts what is in it.
func (s *countedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	if m, ok := m.(*pb.ExportsResponse); ok && err == nil {
		s.told.exports.Add(int64(len(m.GetPut())))
		if !s.complete && !m.GetMore() {
			s.complete = true
			s.told.firsts.Add(1)
		}
	}
	return err
}
