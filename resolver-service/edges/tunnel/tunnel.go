// Package tunnel connects clusters of which only one can be reached: the other one dials it, and is
// called over that connection.
//
// [Dialer] keeps a tunnel to each replica of every cluster whose Cluster object says so. [Accepter]
// takes tunnels that arrive at the gateway, and opens streams in them. A stream carries what a TCP
// connection to the gateway of the cluster that dials would carry: the name of one of its apps and
// the untouched mTLS of two sidecars, or peering. So that gateway serves streams as it serves
// connections, and its exports, limits and guards hold.
//
// A tunnel is mTLS between the two resolver services, each checked by the Cluster object that the
// other has of it, as in peering. Only this certificate makes it the tunnel of that cluster.
package tunnel

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/tunnel/mux"
)

// Config is what both ends need.
type Config struct {
	Cluster  string         // this one's name
	Domain   catalog.Domain // of the reserved host names
	Identity *identity.Source
	Several  bool // this service is one of several replicas
	Log      *slog.Logger
	// Resolver is how host names of gateways are looked up; nil: as the system does.
	Resolver func() *net.Resolver
	// Dial connects to a gateway, "host:port"; nil means TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	process string
}

func (c Config) withProcess() Config {
	c.process = rand.Text()
	return c
}

// Bounds of what the other end can cause here, and of the time that it has.
const (
	maxStreams     = 25_000 // of a tunnel: what a gateway takes from one source
	maxTunnels     = 64     // of a cluster
	greetWithin    = 10 * time.Second
	silence        = 2 * time.Second // after which the other end is pinged
	stall          = 10 * time.Second
	maxMessage     = 4 << 10
	windows        = 64 << 20 // bytes of all streams of a service, beyond the first window of each
	leaveWithin    = time.Second
	backlog        = 256 // streams that have yet to be served
	mostOfAnothers = 512 // bytes of a text that the other end has written
)

var budget = mux.NewBudget(windows)

func (c Config) session(conn net.Conn, note func([]byte), accept func(*mux.Stream)) *mux.Session {
	return mux.New(conn, mux.Config{Accept: accept, Note: note, Budget: budget, Streams: maxStreams, Silence: silence, Stall: stall})
}

// write and read are for the two messages before a session begins, which have their length in front.
func write(to io.Writer, m proto.Message) error {
	text, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = to.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	return err
}

func read(from io.Reader, m proto.Message) error {
	var length [2]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(length[:])
	if n > maxMessage {
		return fmt.Errorf("a message of %d bytes; at most %d are taken", n, maxMessage)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(from, text); err != nil {
		return err
	}
	return proto.Unmarshal(text, m)
}

// tell sends a note.
func tell(s *mux.Session, m *v1alpha1.TunnelWelcome) {
	if text, err := proto.Marshal(m); err == nil {
		_ = s.SendNote(text) // a session that has ended needs no note
	}
}

// told reads a note; an unreadable one says nothing.
func told(note []byte) *v1alpha1.TunnelWelcome {
	m := &v1alpha1.TunnelWelcome{}
	_ = proto.Unmarshal(note, m)
	return m
}

// printable is a text that the other end has written.
func printable(text string) error {
	return errors.New(catalog.Printable(catalog.Clip(text, mostOfAnothers)))
}
