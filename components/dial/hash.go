package dial

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Calls with the same key go to one instance: that with the best score of the route with the best
// score, by weighted rendezvous hashing (Schindelhauer and Schomaker, "Weighted Distributed Hash
// Tables", 2005). A lost instance moves its own keys alone, and a new one takes its share. Loads are bounded (Mirrokni,
// Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018): an instance with more than
// maxLoad times its share of this caller's calls under way, and keptCalls at least, passes further
// ones on to the next best.
const (
	maxLoad   = 1.25
	keptCalls = 16
)

// hashKey is the key of a call's key in its context, a uint64.
type hashKey struct{}

// asked is what a plan asks of each call.
type asked struct {
	hash    catalog.Hash
	headers []catalog.HeaderValue // that guests take calls by
}

// keyed is the context of a call with its key, and with the headers that guests take it by; ctx if it
// has none that is known yet.
func (c *channel) keyed(ctx context.Context, first any) context.Context {
	a := c.asks.Load()
	if a == nil {
		return ctx
	}
	value := a.hash.Source
	if a.hash.Header != "" {
		value = c.header(ctx, first, a.hash.Header)
	}
	var has []catalog.HeaderValue
	for _, h := range a.headers {
		if c.header(ctx, first, h.Name) == h.Value {
			has = append(has, h)
		}
	}
	if has != nil {
		ctx = context.WithValue(ctx, takeKey{}, has)
	}
	if value == "" {
		return ctx
	}
	return context.WithValue(ctx, hashKey{}, xxhash.Sum64String(value))
}

// header is a header of a call: of its first message, if that is there, or else of its metadata.
func (c *channel) header(ctx context.Context, first any, name string) (value string) {
	if first != nil && c.dialer.Header != nil {
		value = c.dialer.Header(first, name)
	}
	if value == "" {
		if md, ok := metadata.FromOutgoingContext(ctx); ok && len(md.Get(name)) > 0 {
			value = md.Get(name)[0]
		}
	}
	return value
}

// awaitsMessage tells whether what the plan asks of a call may be in its first message. keyed tells
// whether something was found without that.
func (c *channel) awaitsMessage(method string, keyed bool) bool {
	a := c.asks.Load()
	return a != nil && (a.headers != nil || a.hash.Header != "" && !keyed) && c.dialer.Header != nil && slices.Contains(answeringMethods, method)
}

// kept is where calls with a key go.
type kept struct {
	routes []keptRoute
}

// keptRoute is a route, with its share of all calls out of 1.
type keptRoute struct {
	*usableRoute
	share     float64
	name      uint64
	instances []uint64 // names of its candidates
}

func keep(usable []usableRoute, offers []catalog.Offer) *kept {
	k := &kept{}
	for i, share := range catalog.Parts(offers) {
		if share == 0 {
			continue
		}
		r := keptRoute{usableRoute: &usable[i], share: share, name: xxhash.Sum64String(usable[i].route.Cluster)}
		for _, c := range r.candidates {
			r.instances = append(r.instances, xxhash.Sum64String(c.endpoints[0].id()))
		}
		k.routes = append(k.routes, r)
	}
	if len(k.routes) == 0 {
		return nil
	}
	return k
}

// pick returns the instance of a key: the route first, so that an instance that is lost moves its keys
// within its route, and the shares of routes hold.
func (k *kept) pick(key uint64) (*usableRoute, *candidate) {
	var calls int64
	for i := range k.routes {
		for j := range k.routes[i].candidates {
			calls += k.routes[i].candidates[j].calls()
		}
	}
	var first *usableRoute
	var own *candidate
	tried := -1.0 // the scores up to this have been tried
	for range k.routes {
		var r *keptRoute
		if r, tried = k.next(key, tried); r == nil {
			break
		}
		c, fits := r.pick(key, calls)
		if fits {
			return r.usableRoute, c
		}
		if first == nil {
			first, own = r.usableRoute, c
		}
	}
	return first, own // calls have begun meanwhile
}

// next is the route with the best score for a key after those that were tried.
func (k *kept) next(key uint64, tried float64) (best *keptRoute, least float64) {
	least = math.Inf(1)
	for i := range k.routes {
		r := &k.routes[i]
		if score := -math.Log(unit(key, r.name)) / r.share; score > tried && score < least {
			best, least = r, score
		}
	}
	return best, least
}

// pick returns the best instance of a route for a key that has room, or else the best of all.
func (r *keptRoute) pick(key uint64, calls int64) (c *candidate, fits bool) {
	most := max(keptCalls, math.Ceil(maxLoad*r.share*float64(calls+1)/float64(len(r.candidates))))
	var best, bestOfAll uint64
	var all *candidate
	for i := range r.candidates {
		score := mix(key, r.instances[i])
		if all == nil || score > bestOfAll {
			all, bestOfAll = &r.candidates[i], score
		}
		if (c == nil || score > best) && float64(r.candidates[i].calls()) < most {
			c, best = &r.candidates[i], score
		}
	}
	if c == nil {
		return all, false
	}
	return c, true
}

// mix is a random number for a key and a name (splitmix64).
func mix(key, name uint64) uint64 {
	x := key ^ name
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is a number above 0 and up to 1 for a key and a name.
func unit(key, name uint64) float64 { return (float64(mix(key, name)>>11) + 1) / (1 << 53) }

// lazyStream opens its stream with the first message, which has the key.
type lazyStream struct {
	ctx     context.Context
	channel *channel
	open    func(context.Context) (grpc.ClientStream, error)

	mu     sync.Mutex
	opened bool
	stream grpc.ClientStream // nil if it could not be opened
	err    error             // why
	forget func() bool
}

func newLazyStream(ctx context.Context, c *channel, open func(context.Context) (grpc.ClientStream, error)) *lazyStream {
	s := &lazyStream{ctx: ctx, channel: c, open: open}
	s.forget = context.AfterFunc(ctx, s.abandon)
	return s
}

// abandon counts a call out that ends before it began.
func (s *lazyStream) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		s.opened, s.err = true, s.ctx.Err()
		s.channel.endCall()
	}
}

// get opens the stream, if it is not open.
func (s *lazyStream) get(first any) (grpc.ClientStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		s.opened = true
		s.forget()
		s.stream, s.err = s.open(s.channel.keyed(s.ctx, first))
	}
	return s.stream, s.err
}

// Header is that of [grpc.ClientStream].
func (s *lazyStream) Header() (metadata.MD, error) {
	stream, err := s.get(nil)
	if err != nil {
		return nil, err
	}
	return stream.Header()
}

// Trailer is that of [grpc.ClientStream].
func (s *lazyStream) Trailer() metadata.MD {
	if stream, err := s.get(nil); err == nil {
		return stream.Trailer()
	}
	return nil
}

// CloseSend is that of [grpc.ClientStream].
func (s *lazyStream) CloseSend() error {
	stream, err := s.get(nil)
	if err != nil {
		return nil // RecvMsg says why
	}
	return stream.CloseSend()
}

// Context is that of [grpc.ClientStream].
func (s *lazyStream) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		return s.stream.Context()
	}
	return s.ctx
}

// SendMsg is that of [grpc.ClientStream].
func (s *lazyStream) SendMsg(m any) error {
	stream, err := s.get(m)
	if err != nil {
		return io.EOF // as gRPC has it: RecvMsg says why
	}
	return stream.SendMsg(m)
}

// RecvMsg is that of [grpc.ClientStream].
func (s *lazyStream) RecvMsg(m any) error {
	stream, err := s.get(nil)
	if err != nil {
		return err
	}
	return stream.RecvMsg(m)
}
