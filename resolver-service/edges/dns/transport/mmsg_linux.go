package transport

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

const (
	// batchSize is how many packets one system call takes or sends at most.
	batchSize = 32
	// usualResponse is the size of the largest response that is expected by UDP. Larger
	// ones are sent too, fewer at a time.
	usualResponse = 1232
	// controlRoom is that of one IPV6_PKTINFO, or of the smaller IP_PKTINFO.
	controlRoom = 40
)

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	size   uint32
}

// batch is the packets of one system call, and the responses to them. All of it is
// allocated once; headers point into the rest.
type batch struct {
	queries  [batchSize]mmsghdr
	inputs   [batchSize]unix.Iovec
	senders  [batchSize]unix.RawSockaddrInet6 // or RawSockaddrInet4, which is smaller
	controls [batchSize][controlRoom]byte
	packets  [batchSize][maxQuery]byte

	responses [batchSize]mmsghdr
	outputs   [batchSize]unix.Iovec
	count     int    // of responses
	out       []byte // the responses themselves
}

// newBatch makes a batch; with control, the address that a packet was sent to is asked for.
func newBatch(control bool) *batch {
	b := &batch{out: make([]byte, 0, batchSize*usualResponse+wire.MaxSize)}
	for i := range b.queries {
		b.inputs[i].Base = &b.packets[i][0]
		b.inputs[i].SetLen(maxQuery)
		h := &b.queries[i].header
		h.Name = (*byte)(unsafe.Pointer(&b.senders[i]))
		h.Iov = &b.inputs[i]
		h.SetIovlen(1)
		if control {
			h.Control = &b.controls[i][0]
		}
		b.responses[i].header.Iov = &b.outputs[i]
		b.responses[i].header.SetIovlen(1)
		b.reset(i)
	}
	return b
}

// reset makes the i-th header ready to receive.
func (b *batch) reset(i int) {
	h := &b.queries[i].header
	h.Namelen = unix.SizeofSockaddrInet6
	if h.Control != nil {
		h.SetControllen(controlRoom)
	}
	h.Flags = 0
}

// receive waits for packets, unless flags has MSG_DONTWAIT, and takes as many as there are.
//
// The goroutine blocks in the system call itself rather than in Go's poller: where
// packets come one by one, to be woken by the poller costs more than to answer.
func (b *batch) receive(fd, flags int) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.queries[0])),
		batchSize, uintptr(flags|unix.MSG_WAITFORONE), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// query fills in q from the i-th packet; false where it can't be a query.
func (b *batch) query(i int, q *Query) bool {
	m := &b.queries[i]
	if m.size < wire.HeaderSize {
		return false
	}
	q.Packet = b.packets[i][:m.size] // of one that is too long the beginning, which ends within a record
	q.From = sender(&b.senders[i])
	if m.header.Control != nil {
		return b.destination(i, q)
	}
	return q.From.IsValid()
}

// destination fills in which address of this machine the i-th packet was sent to. The
// response goes out with the same control message, but by whatever interface leads there.
func (b *batch) destination(i int, q *Query) bool {
	h := &b.queries[i].header
	if int(h.Controllen) < unix.SizeofCmsghdr {
		return false
	}
	c := (*unix.Cmsghdr)(unsafe.Pointer(&b.controls[i][0]))
	data := b.controls[i][unix.CmsgLen(0):]
	switch {
	case c.Level == unix.IPPROTO_IP && c.Type == unix.IP_PKTINFO && int(h.Controllen) >= unix.CmsgLen(unix.SizeofInet4Pktinfo):
		info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0]))
		info.Ifindex = 0
		q.To = netip.AddrFrom4(info.Spec_dst)
	case c.Level == unix.IPPROTO_IPV6 && c.Type == unix.IPV6_PKTINFO && int(h.Controllen) >= unix.CmsgLen(unix.SizeofInet6Pktinfo):
		info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
		info.Ifindex = 0
		q.To = netip.AddrFrom16(info.Addr).Unmap()
	default:
		return false
	}
	return q.From.IsValid()
}

// add puts a response to the i-th packet, which stands in b.out, among those to send.
func (b *batch) add(i int, response []byte) {
	from, to := &b.queries[i].header, &b.responses[b.count].header
	b.outputs[b.count].Base = &response[0]
	b.outputs[b.count].SetLen(len(response))
	to.Name, to.Namelen = from.Name, from.Namelen
	to.Control, to.Controllen = from.Control, from.Controllen
	b.count++
}

// send sends what there is, and tells how many there were that could not be sent. It
// never waits: where the kernel has no room for a response, the client asks again.
func (b *batch) send(fd int) (sent, failed int) {
	for next := 0; next < b.count; {
		n, _, errno := syscall.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.responses[next])),
			uintptr(b.count-next), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			sent += int(n)
			next += int(n)
		case unix.EINTR:
		default: // about the first of them alone
			failed++
			next++
		}
	}
	b.count, b.out = 0, b.out[:0]
	return sent, failed
}

// sender is a socket address of the kernel's.
func sender(sa *unix.RawSockaddrInet6) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(sa)).Addr), port)
	}
	if sa.Family != unix.AF_INET6 {
		return netip.AddrPort{}
	}
	addr := netip.AddrFrom16(sa.Addr).Unmap()
	if sa.Scope_id != 0 {
		addr = addr.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
	}
	return netip.AddrPortFrom(addr, port)
}
