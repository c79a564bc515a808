package peering

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/introductions"
)

// introductionPause is the least time between two messages of introductions that are sent, and that are
// taken: each changes the trust in peers.
const introductionPause = 200 * time.Millisecond

// Introductions of one peer are read as fast as this, in clusters a second, after a first time all of
// them. Each takes a tenth of a millisecond to be checked.
const introductionRate = 500

func newIntroductionLimiter() *rate.Limiter {
	return rate.NewLimiter(introductionRate, introductions.MaxClusters)
}

// Introductions streams this cluster's introductions to the caller's, as differences from those
// that it knows.
func (s *Server) Introductions(req *v1alpha1.IntroductionsRequest, to grpc.ServerStreamingServer[v1alpha1.IntroductionsResponse]) error {
	if s.cfg.Introduces == nil {
		return status.Error(codes.Unimplemented, "this cluster introduces no others")
	}
	if n := len(req.GetKnown()); n > introductions.MaxClusters {
		return status.Errorf(codes.InvalidArgument, "%d known introductions in the request; at most %d are allowed", n, introductions.MaxClusters)
	}
	return s.serve(to.Context(), req.GetCluster(), 0, nil, nil, func(ctx context.Context, st *serverStream) error {
		known := make(map[string]uint64, len(req.GetKnown()))
		for _, k := range req.GetKnown() {
			known[k.GetCluster()] = k.GetDigest()
		}
		return st.sendIntroductions(ctx, known, to.Send)
	})
}

func (s *serverStream) sendIntroductions(ctx context.Context, known map[string]uint64, send func(*v1alpha1.IntroductionsResponse) error) error {
	var told *introductions.Listing
	for {
		now, changed := s.cfg.Introduces.Follow()
		if now != nil && now != told && now.Tells(s.cluster) {
			var put []*v1alpha1.Introduction
			var removed []string
			if told == nil {
				s.subscriber.quota.charge(len(known) + now.Len())
				put, removed = now.First(s.cluster, known)
			} else {
				put, removed = now.Since(told, s.cluster)
			}
			told, known = now, nil
			for _, m := range introductionMessages(s.cfg.Cluster, put, removed) {
				if err := send(m); err != nil {
					return err
				}
			}
			if !live.Sleep(ctx, introductionPause) {
				return ctx.Err()
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// introductionMessages spreads a change over messages of a bounded size. Without a change there is none.
func introductionMessages(cluster string, put []*v1alpha1.Introduction, removed []string) (all []*v1alpha1.IntroductionsResponse) {
	bytes := fullMessage
	next := func(size int) *v1alpha1.IntroductionsResponse {
		if bytes += size; bytes > fullMessage {
			all, bytes = append(all, &v1alpha1.IntroductionsResponse{Cluster: cluster}), size
		}
		return all[len(all)-1]
	}
	for _, name := range removed {
		m := next(len(name) + 2)
		m.Removed = append(m.Removed, name)
	}
	for _, i := range put {
		m := next(proto.Size(i) + 4)
		m.Put = append(m.Put, i)
	}
	return slices.Clip(all)
}

// Heard takes the introductions of peers. Many links call it at once.
type Heard interface {
	// Known returns the introductions of a peer, and a channel that is closed once the peer has to say
	// all anew, or nothing; nil: it may introduce none.
	Known(peer string) (known []*v1alpha1.KnownIntroduction, ended <-chan struct{})
	// Hear takes a message, and keeps it. It returns once lookups follow.
	Hear(peer string, m *v1alpha1.IntroductionsResponse) error
}

// hearing hears the introductions of a peer on one connection.
type hearing struct {
	*link
	conn *grpc.ClientConn
}

// run hears them until ctx ends, as long as the peer may introduce any.
func (l *hearing) run(ctx context.Context) {
	l.hears.Lock() // the stream of the connection before ends by its own context
	defer l.hears.Unlock()
	for failures := 0; ctx.Err() == nil; {
		_, _, changed := l.object.Follow()
		known, ended := l.cfg.Heard.Known(l.cluster)
		if ended == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := l.stream(ctx, known, ended)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			continue
		case status.Code(err) == codes.Unimplemented:
			l.info("a peer that may introduce clusters has an older service, or none to introduce", "peer", l.cluster)
			<-ctx.Done() // the next connection may lead to another replica
			return
		}
		l.warn("introductions of a peer are not heard; what it introduced stands", "peer", l.cluster, "err", unwrapGRPC(err))
		live.Sleep(ctx, live.Backoff(time.Second, maxIntroductionRetry, failures))
		failures++
	}
}

const maxIntroductionRetry = time.Minute

// stream runs one stream until it fails, or ended is closed.
func (l *hearing) stream(ctx context.Context, known []*v1alpha1.KnownIntroduction, ended <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := l.take(ctx, known)
	select {
	case <-ended:
		return nil
	default:
		return err
	}
}

func (l *hearing) take(ctx context.Context, known []*v1alpha1.KnownIntroduction) error {
	stream, err := v1alpha1.NewPeeringClient(l.conn).Introductions(ctx, &v1alpha1.IntroductionsRequest{Cluster: l.cfg.Cluster, Known: known})
	for err == nil {
		var m *v1alpha1.IntroductionsResponse
		if m, err = stream.Recv(); err != nil {
			return err
		}
		if m.GetCluster() != l.cluster {
			return wrongCluster{l.cluster, m.GetCluster()}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = l.cfg.Heard.Hear(l.cluster, m)
		live.Sleep(ctx, max(introductionPause, limits.Charge(l.introduced, len(m.GetPut())+len(m.GetRemoved()))))
	}
	return err
}

// introducer tells whether the peer may introduce others: its link never rests then.
func introducer(c *catalog.Cluster) bool { return c.Introduces != nil }
