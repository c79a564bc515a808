package stream

import (
	"net/netip"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// streamLimiter bounds the open streams of an app from one source. It is safe for concurrent use.
type streamLimiter struct {
	mu   sync.Mutex
	open map[appSource]map[string]int // streams by instance ID; empty for none
}

// appSource is one app at one source.
type appSource struct {
	app    catalog.App
	source netip.Addr
}

// streamRequest describes a new stream and its limits.
type streamRequest struct {
	app          catalog.App
	source       netip.Addr
	instance     string // its ID; empty for a stream that registers none
	maxInstances int    // instances
	maxStreams   int    // streams that register no instance
}

// acquire counts a stream, or says why it is refused. same bounds the streams for one instance.
func (s *streamLimiter) acquire(want streamRequest, same int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := appSource{want.app, want.source}
	streams := s.open[at]
	instances := len(streams)
	if streams[""] > 0 {
		instances--
	}
	switch n := streams[want.instance]; {
	case want.instance == "" && n >= want.maxStreams:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams from %s that register no instance, which is the limit; close some", want.app, n, sourceText(want.source))
	case want.instance != "" && n >= same:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d streams from %s for the instance %q, which is the limit; close some", want.app, n, sourceText(want.source), want.instance)
	case want.instance != "" && n == 0 && instances >= want.maxInstances:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d instances registered from %s, which is the limit; "+
			"if that many sidecars are behind one address, list it with most: in instances.delegates of the resolver service", want.app, instances, sourceText(want.source))
	}
	if streams == nil {
		streams = map[string]int{}
		s.open[at] = streams
	}
	streams[want.instance]++
	return func() { s.release(at, want.instance) }, nil
}

func (s *streamLimiter) release(at appSource, instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := s.open[at]
	if streams[instance]--; streams[instance] == 0 {
		delete(streams, instance)
	}
	if len(streams) == 0 {
		delete(s.open, at)
	}
}
