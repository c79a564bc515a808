package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/tunnel/mux"
)

// Accepter has the tunnels of the clusters that dial this one.
type Accepter struct {
	cfg     Config
	log     *throttle.Log
	creds   credentials.TransportCredentials
	started time.Time
	serving sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]*accepted
	leaving  bool
	ended    bool                  // serving is waited for
	greeting map[net.Conn]struct{} // that have no tunnel yet
}

// accepted are the tunnels of one cluster, guarded by Accepter.mu.
type accepted struct {
	object  bool      // there is a Cluster object that lets it dial
	tunnels []*inward // the oldest first
	since   time.Time // that there is one, or none
	err     error     // why one ended, or was refused
	changed chan struct{}
}

// inward is one tunnel.
type inward struct {
	cluster, process string // of the dialing end
	id               []byte
	session          *mux.Session
	info             credentials.AuthInfo // of its own handshake
	apps             int                  // streams to apps
	leaving          bool                 // the other end opens another
}

// NewAccepter makes an Accepter without tunnels.
func NewAccepter(cfg Config) *Accepter {
	return &Accepter{
		cfg: cfg.withProcess(), log: throttle.New(cfg.Log, throttle.Interval), creds: cfg.Identity.TunnelingCredentials(), started: time.Now(),
		accepted: map[string]*accepted{}, greeting: map[net.Conn]struct{}{},
	}
}

// Run follows the Cluster objects, which say who may dial. When ctx ends it ends every tunnel.
func (a *Accepter) Run(ctx context.Context, clusters *live.Value[[]*catalog.Cluster]) error {
	for ctx.Err() == nil {
		all, _, changed := clusters.Follow()
		a.follow(all)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	a.mu.Lock()
	a.leaving, a.ended = true, true
	for conn := range a.greeting {
		conn.Close()
	}
	a.mu.Unlock()
	a.follow(nil)
	a.serving.Wait()
	return nil
}

func (a *Accepter) follow(clusters []*catalog.Cluster) {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := make(map[string]bool, len(a.accepted))
	for name := range a.accepted {
		gone[name] = true
	}
	for _, c := range clusters {
		if c.Tunnel == catalog.TunnelAccept && c.Name != a.cfg.Cluster {
			delete(gone, c.Name)
			a.of(c.Name).object = true
		}
	}
	for name := range gone {
		for _, t := range a.accepted[name].tunnels {
			go t.session.Close() // TLS says goodbye first, which may wait
		}
		close(a.accepted[name].changed)
		delete(a.accepted, name)
	}
}

// of are the tunnels of a cluster that may dial.
func (a *Accepter) of(cluster string) *accepted {
	of := a.accepted[cluster]
	if of == nil {
		of = &accepted{since: a.started, changed: make(chan struct{})}
		a.accepted[cluster] = of
	}
	return of
}

func (of *accepted) change() {
	close(of.changed)
	of.changed = make(chan struct{})
}

// Take takes over a connection from the gateway.
func (a *Accepter) Take(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaving {
		conn.Close()
		return
	}
	a.greeting[conn] = struct{}{}
	a.serving.Go(func() { a.serve(conn) })
}

// serve makes a tunnel of a connection, and runs it.
func (a *Accepter) serve(conn net.Conn) {
	t, err := a.greet(conn)
	a.mu.Lock()
	delete(a.greeting, conn)
	a.mu.Unlock()
	if t == nil {
		if err != nil {
			a.log.Warn("refused", "refused a tunnel", "from", conn.RemoteAddr(), "err", err)
		}
		conn.Close()
		return
	}
	a.log.Info("open "+t.cluster, "a cluster has dialled this one, and is called by its tunnel", "peer", t.cluster, "from", conn.RemoteAddr())
	err = t.session.Run()
	a.remove(t, err)
	a.log.Info("ended "+t.cluster, "tunnel of a cluster ended", "peer", t.cluster, "err", err)
}

// greet is the handshake, the hello and the welcome. It returns no tunnel, and no error, where none was
// to be made.
func (a *Accepter) greet(raw net.Conn) (*inward, error) {
	_ = raw.SetDeadline(time.Now().Add(greetWithin))
	conn, info, err := a.creds.ServerHandshake(raw)
	if err != nil {
		return nil, err
	}
	cluster, ok := identity.Peer(info)
	if !ok {
		return nil, errors.New("the other end is no resolver service")
	}
	hello := &v1alpha1.TunnelHello{}
	if err := read(conn, hello); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster, err)
	}
	t := &inward{cluster: cluster, process: hello.GetProcess(), id: make([]byte, 16), info: info}
	rand.Read(t.id)
	welcome := &v1alpha1.TunnelWelcome{Process: a.cfg.process, Several: a.cfg.Several}
	refused := a.admit(t, hello)
	switch {
	case refused != nil:
		welcome.Refused = refused.Error()
	case len(hello.GetRenews()) > 0:
		if !a.renew(t, hello.GetRenews()) {
			welcome.Process = "" // another one has it, or nobody any more
		}
	case !slices.Contains(hello.GetHas(), a.cfg.process):
		welcome.Id = t.id
	}
	err = write(conn, welcome)
	if err != nil || refused != nil || len(welcome.Id) == 0 {
		return nil, errors.Join(refused, err, conn.Close())
	}
	_ = raw.SetDeadline(time.Time{})
	t.session = a.cfg.session(conn, func(note []byte) { a.noted(t, note) }, nil)
	if !a.add(t) {
		return nil, conn.Close()
	}
	return t, nil
}

// admit refuses a cluster that may not dial.
func (a *Accepter) admit(t *inward, hello *v1alpha1.TunnelHello) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.accepted[t.cluster]
	switch {
	case of == nil:
		return fmt.Errorf("the Cluster object of %s in cluster %s does not have \"tunnel: accept\"", t.cluster, a.cfg.Cluster)
	case hello.GetProcess() == "":
		return errors.New("the hello does not name its process")
	case len(of.tunnels) >= maxTunnels:
		of.err = fmt.Errorf("it has %d tunnels already", maxTunnels)
		return of.err
	}
	return nil
}

// renew lets a tunnel live on by the certificates of a newer handshake.
func (a *Accepter) renew(by *inward, id []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.accepted[by.cluster].tunnels {
		if bytes.Equal(t.id, id) && a.cfg.Identity.Prolong(t.info, by.info) {
			return true
		}
	}
	return false
}

// add makes a tunnel known. Others of the same process are dead, or it would have named them.
func (a *Accepter) add(t *inward) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.accepted[t.cluster]
	if of == nil || a.leaving || len(of.tunnels) >= maxTunnels {
		return false
	}
	for _, o := range of.tunnels {
		if o.process == t.process && !o.leaving {
			go o.session.Close()
		}
	}
	if len(of.tunnels) == 0 {
		of.since = time.Now()
	}
	of.tunnels, of.err = append(of.tunnels, t), nil
	of.change()
	return true
}

func (a *Accepter) remove(t *inward, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.accepted[t.cluster]
	if of == nil {
		return
	}
	of.tunnels = slices.DeleteFunc(of.tunnels, func(o *inward) bool { return o == t })
	if len(of.tunnels) == 0 {
		of.since, of.err = time.Now(), err
	}
	of.change()
}

// noted takes in a note of the other end.
func (a *Accepter) noted(t *inward, note []byte) {
	if !told(note).GetLeaving() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.leaving {
		return
	}
	t.leaving = true
	if of := a.accepted[t.cluster]; of != nil {
		of.change()
	}
	go tell(t.session, &v1alpha1.TunnelWelcome{Left: true})
}

// errNone says that a cluster has no tunnel here. It is a refusal like that of a gateway's port where
// nobody listens.
type errNone struct {
	cluster string
	last    error
}

// Error says what is missing.
func (e errNone) Error() string {
	text := "cluster " + e.cluster + " dials this one, and has no tunnel here"
	if e.last != nil {
		text += "; the last one: " + e.last.Error()
	}
	return text
}

// Unwrap is the refusal.
func (e errNone) Unwrap() error { return syscall.ECONNREFUSED }

// How long a cluster that has lost its last tunnel may take to make another one, and to find a
// service that has just begun.
const (
	reconnectWithin = 2 * time.Second
	beginWithin     = 15 * time.Second
)

// Open opens a stream to a cluster's gateway, for an app. Where the last tunnel was lost just now,
// it waits for the next.
func (a *Accepter) Open(ctx context.Context, cluster string) (*Stream, error) {
	t, s, err := a.open(ctx, cluster, true)
	if err != nil {
		return nil, err
	}
	return &Stream{Stream: s, closed: func() { a.closed(t) }}, nil
}

// Connect is Open for peering.
func (a *Accepter) Connect(ctx context.Context, cluster string) (net.Conn, error) {
	_, s, err := a.open(ctx, cluster, false)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (a *Accepter) open(ctx context.Context, cluster string, app bool) (*inward, *mux.Stream, error) {
	var timer <-chan time.Time
	for {
		a.mu.Lock()
		of := a.accepted[cluster]
		if of == nil {
			a.mu.Unlock()
			return nil, nil, errNone{cluster, nil}
		}
		if t, s := of.open(); s != nil {
			if app {
				t.apps++
			}
			a.mu.Unlock()
			return t, s, nil
		}
		none := errNone{cluster, of.err}
		left, changed := reconnectWithin-time.Since(of.since), of.changed
		switch {
		case len(of.tunnels) > 0: // they are leaving, or full
			left = reconnectWithin
		case of.since.Equal(a.started):
			left = beginWithin - time.Since(a.started)
		}
		a.mu.Unlock()
		if timer == nil {
			timer = time.After(max(left, 0))
		}
		select {
		case <-changed:
		case <-timer:
			return nil, nil, none
		case <-ctx.Done():
			return nil, nil, none
		}
	}
}

// open opens a stream in the tunnel with the fewest.
func (of *accepted) open() (*inward, *mux.Stream) {
	all := slices.DeleteFunc(slices.Clone(of.tunnels), func(t *inward) bool { return t.leaving })
	slices.SortStableFunc(all, func(a, b *inward) int { return a.session.Streams() - b.session.Streams() })
	for _, t := range all {
		if s, err := t.session.Open(); err == nil {
			return t, s
		}
	}
	return nil, nil
}

// closed counts a stream to an app out.
func (a *Accepter) closed(t *inward) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.apps--; t.apps == 0 && a.leaving {
		go t.session.Close()
	}
}

// Leave has the other ends dial anew, and ends each tunnel once no app is called by it.
func (a *Accepter) Leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.leaving = true
	for conn := range a.greeting {
		conn.Close()
	}
	for _, of := range a.accepted {
		for _, t := range of.tunnels {
			a.serving.Go(func() { a.leave(t) })
		}
	}
}

func (a *Accepter) leave(t *inward) {
	tell(t.session, &v1alpha1.TunnelWelcome{Leaving: true})
	a.mu.Lock()
	idle := t.apps == 0
	a.mu.Unlock()
	if idle {
		t.session.Close()
	}
}

// AddStatus adds the tunnels to the states of peers.
func (a *Accepter) AddStatus(peers []*v1alpha1.PeerStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range peers {
		of := a.accepted[p.GetCluster()]
		if of == nil {
			continue
		}
		p.Tunnel = &v1alpha1.TunnelStatus{Mode: catalog.TunnelAccept, Open: uint32(len(of.tunnels)), SinceUnixMs: of.since.UnixMilli()}
		for _, t := range of.tunnels {
			p.Tunnel.Streams += uint32(t.session.Streams())
		}
		if len(of.tunnels) == 0 && of.err != nil {
			p.Tunnel.Error = of.err.Error()
		}
	}
}

// Stream is one to an app.
type Stream struct {
	*mux.Stream
	once   sync.Once
	closed func()
}

// Close closes the stream.
func (s *Stream) Close() error {
	defer s.once.Do(s.closed)
	return s.Stream.Close()
}

// Reset resets the stream.
func (s *Stream) Reset() {
	defer s.once.Do(s.closed)
	s.Stream.Reset()
}
