package process

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// predecessor is the service in whose place this one is started, while it stops.
type predecessor struct {
	conn    *net.UnixConn
	sockets sockets       // those that this service did not take are closed
	gone    chan struct{} // closed once it has ended, or this service serves
	serving sync.Once
}

// findPredecessor finds a service that stops, and gets its sockets; nil where there is none.
func (d DataDir) findPredecessor() *predecessor {
	var conn *net.UnixConn
	err := d.atHandover(func(path string) (err error) {
		conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		return err
	})
	if err != nil {
		return nil
	}
	p := &predecessor{conn: conn, gone: make(chan struct{})}
	_ = conn.SetDeadline(time.Now().Add(messageTimeout))
	if _, err = conn.Write([]byte(sendSockets)); err == nil && sameUser(conn) {
		p.sockets, err = receive(conn)
	}
	if err != nil || p.sockets == nil {
		conn.Close()
		return nil
	}
	return p
}

// release has it let go of the stores and of dataDir, and waits.
func (p *predecessor) release() error {
	p.sockets.close()
	_ = p.conn.SetDeadline(time.Now().Add(messageTimeout))
	_, err := p.conn.Write([]byte(releaseData))
	if err == nil {
		_, err = p.conn.Read(make([]byte, len(releaseData)))
	}
	if err != nil {
		return fmt.Errorf("take over from the service that stops: %w", err)
	}
	_ = p.conn.SetDeadline(time.Time{})
	go func() {
		_, _ = p.conn.Read(make([]byte, 1)) // nothing more is said
		close(p.gone)
	}()
	return nil
}

// serves tells it that this service serves, and parts.
func (p *predecessor) serves() {
	_, _ = p.conn.Write([]byte(nowServing)) // it may have ended
	p.close()
}

// close closes what this service keeps of it.
func (p *predecessor) close() {
	if p != nil {
		p.sockets.close()
		p.conn.Close()
	}
}

// AwaitPredecessor returns at once where there is no predecessor. Otherwise it returns when the
// predecessor has ended, or once this service has its views, which ready tells. Until then the
// predecessor serves.
func (s *Listeners) AwaitPredecessor(ctx context.Context, ready *live.Value[bool]) {
	p := s.predecessor
	if p == nil {
		return
	}
	done, _, changed := ready.Follow()
	for !done {
		select {
		case <-changed:
			done, _, changed = ready.Follow()
		case <-p.gone:
			done = true
		case <-ctx.Done():
			done = true
		}
	}
	p.serving.Do(func() {
		s.log.Info("took over from the service that stops")
		for l := range s.unix() {
			l.keep()
		}
		p.serves()
	})
}
