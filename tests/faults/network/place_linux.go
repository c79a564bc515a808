package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

// Place is a network of its own, with a loopback and one way out.
type Place struct {
	addresses []netip.Addr
	namespace *namespace
	device    *os.File
	queue     *queue // of what is on its way here
}

func newPlace(addresses []netip.Addr) (*Place, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	p := &Place{addresses: addresses, namespace: ns, queue: newQueue()}
	err = ns.do(func() (err error) {
		p.device, err = openDevice(addresses)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, ns.file.Close())
	}
	return p, nil
}

// Do calls f on a thread that is in the place: the sockets that f opens and the processes
// that it starts are in it, for good. f must not start goroutines to do so.
func (p *Place) Do(f func() error) error { return p.namespace.do(f) }

// Addresses are those of the place, as they were given.
func (p *Place) Addresses() []netip.Addr { return p.addresses }

// Dial connects from within the place to an IP address and port.
func (p *Place) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = p.Do(func() error {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

func (p *Place) close() error { return errors.Join(p.device.Close(), p.namespace.file.Close()) }

// deliver writes to the place what is due, until done.
func (p *Place) deliver(done <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, wait, ok := p.queue.take(time.Now())
		if ok {
			_, _ = p.device.Write(next.bytes) // what the place can't take is lost, as on any link
			continue
		}
		timer.Reset(wait)
		select {
		case <-p.queue.changed:
		case <-timer.C:
		case <-done:
			return
		}
	}
}
