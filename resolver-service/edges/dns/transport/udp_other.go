//go:build !linux

package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// udpSocket is a socket for UDP in the way that works everywhere: a packet at a time.
type udpSocket struct {
	conn *net.UDPConn
	// One of these is set where the socket is for all addresses of the machine.
	four *ipv4.PacketConn
	six  *ipv6.PacketConn
}

// openUDP opens one socket, however many are wanted: not every system shares packets
// out between several.
func openUDP(addr netip.AddrPort, _ int, _, onlySix bool) ([]*udpSocket, error) {
	network := "udp"
	switch {
	case onlySix:
		network = "udp6"
	case addr.Addr().Is4():
		network = "udp4"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	s := &udpSocket{conn: conn}
	switch {
	case !addr.Addr().IsUnspecified():
	case addr.Addr().Is4():
		s.four = ipv4.NewPacketConn(conn)
		err = s.four.SetControlMessage(ipv4.FlagDst, true)
	default:
		s.six = ipv6.NewPacketConn(conn)
		err = s.six.SetControlMessage(ipv6.FlagDst, true)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return []*udpSocket{s}, nil
}

func (s *udpSocket) close() { s.conn.Close() }

// errorPause is how long to wait after an error that may come again at once.
const errorPause = 5 * time.Millisecond

// serve answers what comes until ctx ends.
func (s *udpSocket) serve(ctx context.Context, w *worker) error {
	stop := context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	in, out := make([]byte, maxQuery+1), make([]byte, wire.MaxSize)
	send := func(q *Query, m []byte) { s.send(w, q, m) }
	for ctx.Err() == nil {
		n, err := s.receive(in, &w.query)
		switch {
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			if ctx.Err() == nil {
				time.Sleep(errorPause) // an error of one packet that was sent, or want of memory
			}
			continue
		}
		w.tally.queries.Add(1)
		if n < wire.HeaderSize {
			w.tally.dropped.Add(1)
			continue
		}
		w.query.Packet = in[:min(n, maxQuery)] // of one that is too long the beginning, which ends within a record
		if m := w.answerUDP(out[:0], send); len(m) > 0 {
			send(&w.query, m)
		}
	}
	return nil
}

// receive reads one packet, and who sent it to which address.
func (s *udpSocket) receive(in []byte, q *Query) (n int, err error) {
	var from net.Addr
	var to net.IP
	switch {
	case s.four != nil:
		var control *ipv4.ControlMessage
		if n, control, from, err = s.four.ReadFrom(in); control != nil {
			to = control.Dst
		}
	case s.six != nil:
		var control *ipv6.ControlMessage
		if n, control, from, err = s.six.ReadFrom(in); control != nil {
			to = control.Dst
		}
	default:
		n, from, err = s.conn.ReadFromUDP(in)
	}
	if err != nil {
		return 0, err
	}
	if from, ok := from.(*net.UDPAddr); ok {
		sender := from.AddrPort()
		q.From = netip.AddrPortFrom(sender.Addr().Unmap(), sender.Port())
	}
	if to, ok := netip.AddrFromSlice(to); ok {
		q.To = to.Unmap()
	}
	return n, nil
}

// send sends a response from the address that was asked.
func (s *udpSocket) send(w *worker, q *Query, m []byte) {
	to := net.UDPAddrFromAddrPort(q.From)
	var err error
	switch {
	case s.four != nil:
		_, err = s.four.WriteTo(m, &ipv4.ControlMessage{Src: q.To.AsSlice()}, to)
	case s.six != nil:
		_, err = s.six.WriteTo(m, &ipv6.ControlMessage{Src: q.To.AsSlice()}, to)
	default:
		_, err = s.conn.WriteToUDP(m, to)
	}
	if err != nil {
		w.tally.dropped.Add(1)
		return
	}
	w.tally.sent(m)
}
