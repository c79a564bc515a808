package servers

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection through a Proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	answered atomic.Bool // the server spoke last
}

// piece is what one read brought, and when it may go on.
type piece struct {
	bytes []byte
	due   time.Time
}

// close ends the link; run does the rest.
func (l *link) close() { l.cancel() }

// run connects to the server, once packets go through, and copies until both sides have
// said all, or one is gone.
func (l *link) run() {
	defer l.proxy.forget(l)
	defer l.cancel()
	defer l.client.Close()
	if !l.passable() {
		return
	}
	dialer := net.Dialer{}
	server, err := dialer.DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		return // the client sees its connection closed
	}
	defer server.Close()
	stop := context.AfterFunc(l.ctx, func() { // so that reads and writes end
		l.client.Close()
		server.Close()
	})
	defer stop()
	l.answered.Store(true)
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, l.client, l.toServer) })
	both.Go(func() { l.copy(l.client, server, l.toClient) })
	both.Wait()
}

func (l *link) toServer(bytes int) {
	l.proxy.sent.Add(int64(bytes))
	if l.answered.Swap(false) {
		l.proxy.requests.Add(1)
	}
}

func (l *link) toClient(bytes int) {
	l.proxy.received.Add(int64(bytes))
	l.answered.Store(true)
}

// copy copies one direction. The end of it is passed on as late as its bytes are.
func (l *link) copy(to, from net.Conn, count func(bytes int)) {
	pieces := make(chan piece, linkBuffer)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		defer close(pieces)
		l.read(from, pieces)
	})
	for p := range pieces {
		if !l.wait(p.due) || !l.passable() {
			return
		}
		count(len(p.bytes))
		if _, err := to.Write(p.bytes); err != nil {
			l.close()
			return
		}
	}
	if l.passable() {
		_ = to.(*net.TCPConn).CloseWrite() // fails when the other side is gone, which is well
	}
}

func (l *link) read(from net.Conn, pieces chan<- piece) {
	for {
		buffer := make([]byte, linkRead)
		n, err := from.Read(buffer)
		if n > 0 {
			state, _ := l.proxy.now()
			select {
			case pieces <- piece{buffer[:n], time.Now().Add(state.delay)}:
			case <-l.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passable waits while packets are dropped, and tells whether the link is still open.
func (l *link) passable() bool {
	for {
		state, changed := l.proxy.now()
		if !state.dropping {
			return l.ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-l.ctx.Done():
			return false
		}
	}
}

// wait waits for a time, and tells whether the link is still open then.
func (l *link) wait(due time.Time) bool {
	left := time.Until(due)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}
