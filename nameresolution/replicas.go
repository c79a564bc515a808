package nameresolution

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/addresses"
)

const (
	// maxReplicas bounds the addresses in a configuration.
	maxReplicas = addresses.Most
	// lookUpTime bounds one lookup of a name. It is tried again in the next round.
	lookUpTime = 3 * time.Second
)

// replica is one place where the service can be reached.
type replica struct {
	configured string // as in the configuration
	target     string // as gRPC wants it
}

// String names it for people.
func (r replica) String() string {
	if _, at, ok := strings.Cut(r.target, ":///"); ok && at != r.configured && !strings.HasPrefix(r.configured, "unix:") {
		return r.configured + " (" + at + ")"
	}
	return r.configured
}

// authority is what the replica is called on the stream, whatever its address.
func (r replica) authority() string {
	if strings.HasPrefix(r.configured, "unix://") {
		return "localhost"
	}
	return r.configured
}

// replicas are the places where the service can be reached: addresses, and names that
// stand for as many addresses as DNS has for them. They belong to the client's goroutine.
type replicas struct {
	configured []string
	lookup     addresses.Lookup
	known      map[string][]replica // by name in the configuration: what it stood for last
}

func newReplicas(configured []string) *replicas {
	return &replicas{configured: configured, lookup: addresses.System, known: map[string][]replica{}}
}

// several tells whether there is more than one, as far as is known.
func (s *replicas) several() bool {
	n := 0
	for _, c := range s.configured {
		n += max(1, len(s.known[c]))
	}
	return n > 1
}

// round is one try of each replica, in an order of its own: sidecars spread over the
// replicas, and those of one that went away over the others. last is tried last. A name
// is looked up when its turn comes.
type round struct {
	of    *replicas
	last  replica
	names []string // of the configuration, yet to come
	next  []replica
}

func (s *replicas) round(last replica) *round {
	r := &round{of: s, last: last, names: slices.Clone(s.configured)}
	shuffleLast(r.names, last.configured)
	return r
}

// take is the next replica to try; ok is false when the round is over. An error is that
// of a name that could not be looked up, which had its turn by that.
func (r *round) take(ctx context.Context) (to replica, ok bool, err error) {
	if len(r.next) == 0 {
		if len(r.names) == 0 {
			return replica{}, false, nil
		}
		name := r.names[0]
		r.names = r.names[1:]
		if r.next, err = r.of.find(ctx, name); err != nil {
			return replica{}, true, err
		}
		shuffleLast(r.next, r.last)
	}
	to, r.next = r.next[0], r.next[1:]
	return to, true, nil
}

// find lists what an address of the configuration stands for. A lookup that fails leaves
// what was found before.
func (s *replicas) find(ctx context.Context, configured string) ([]replica, error) {
	if strings.HasPrefix(configured, "unix://") {
		return []replica{{configured, configured}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	all, err := addresses.Of(ctx, s.lookup, configured)
	if err == nil && len(all) == 0 {
		host, _, _ := net.SplitHostPort(configured)
		err = fmt.Errorf("no address for %s", host)
	}
	if err != nil {
		if known := s.known[configured]; len(known) > 0 {
			return slices.Clone(known), nil
		}
		return nil, fmt.Errorf("resolver service %s: look up its address: %w", configured, err)
	}
	var found []replica
	for _, at := range all {
		found = append(found, replica{configured, "passthrough:///" + at})
	}
	s.known[configured] = found
	return slices.Clone(found), nil
}

// shuffleLast puts all into an order by chance, but last at the end if it is there.
func shuffleLast[T comparable](all []T, last T) {
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if i := slices.Index(all, last); i >= 0 {
		all[i], all[len(all)-1] = all[len(all)-1], all[i]
	}
}
