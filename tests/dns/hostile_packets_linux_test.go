package dns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
)

// corpusVariable names a directory of packets, one in each file, that are sent and mutated
// besides ours. There is a good one of CZ.NIC's, https://github.com/CZ-NIC/dns-fuzzing, which
// says nothing of a licence and so is not here.
const corpusVariable = "ISTHMUS_DNS_CORPUS"

// head is that of a query with so many questions and other records.
func head(questions, answers, authority, additional uint16) []byte {
	h := []byte{0, 0, 1, 0}
	for _, n := range []uint16{questions, answers, authority, additional} {
		h = binary.BigEndian.AppendUint16(h, n)
	}
	return h
}

// oddPackets are messages that have broken readers of DNS before: see RFC 9267.
func oddPackets() [][]byte {
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	inA := []byte{0, 1, 0, 1}
	shop := []byte("\x06orders\x04shop\x07isthmus\x08internal\x00")
	opt := func(length uint16, data ...byte) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{0, 0, 41, 4, 208, 0, 0, 0, 0}, length), data...)
	}
	record := func(name []byte) []byte { return join(name, []byte{0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4}) }
	packets := [][]byte{
		head(0, 0, 0, 0), head(1, 0, 0, 0), head(65535, 0, 0, 0), head(0, 65535, 65535, 65535),
		join(head(1, 0, 0, 0), []byte{0xc0, 12}, inA),                               // a pointer to itself
		join(head(1, 0, 0, 0), []byte{0xc0, 14, 0xc0, 12}, inA),                     // two to each other
		join(head(1, 0, 0, 0), []byte{1, 'a', 0xc0, 12}, inA),                       // a name that goes on for ever
		join(head(1, 0, 0, 0), []byte{0xc0, 0}, inA),                                // into the header
		join(head(1, 0, 0, 0), []byte{0xff, 0xff}, inA),                             // past the end
		join(head(1, 0, 0, 0), []byte{0xc0}),                                        // half of one
		join(head(1, 0, 0, 0), []byte{0x40, 1}, inA),                                // kinds of labels that are no more
		join(head(1, 0, 0, 0), []byte{0x80, 1}, inA),                                //
		join(head(1, 0, 0, 0), []byte{63}, bytes.Repeat([]byte{'a'}, 62)),           // a label that is cut
		join(head(1, 0, 0, 0), bytes.Repeat([]byte{1, 'a'}, 127), []byte{0}, inA),   // the longest name
		join(head(1, 0, 0, 0), bytes.Repeat([]byte{1, 'a'}, 128), []byte{0}, inA),   // one that is too long
		join(head(1, 0, 0, 0), bytes.Repeat([]byte{1, 'a'}, 200)),                   //
		join(head(1, 0, 0, 0), shop), join(head(1, 0, 0, 0), shop, []byte{0, 1, 0}), // without a type, or half a class
		join(head(2, 0, 0, 0), shop, inA, []byte{0xc0, 12}, inA),                                         // two questions
		join(head(1, 0, 0, 3), shop, inA, record([]byte{0xc0, 12}), record([]byte{0xc0, 42}), opt(0)),    // pointers in records
		join(head(1, 0, 0, 1), shop, inA, record([]byte{0xc0, byte(12 + len(shop) + 4)})),                // to itself there
		join(head(1, 0, 0, 1), shop, inA, opt(1000)), join(head(1, 0, 0, 1), shop, inA, opt(3, 0, 3, 0)), // an OPT that is cut
		join(head(1, 0, 0, 1), shop, inA, opt(6, 0, 10, 0xff, 0xff, 1, 2)),              // an option that is longer than the OPT
		join(head(1, 0, 0, 2), shop, inA, opt(0), opt(0)),                               // two
		join(head(1, 0, 0, 1), shop, inA, []byte{1, 'x'}, opt(0)),                       // one with a name
		join(head(1, 0, 0, 1), shop, inA, opt(5, 0, 10, 0, 1, 7)),                       // a short cookie
		join(head(1, 0, 0, 1), shop, inA, opt(12, 0, 8, 0, 8, 0, 9, 33, 0, 1, 2, 3, 4)), // a client subnet of no family
		join(head(1, 0, 0, 1), shop, inA, opt(9, 0, 8, 0, 5, 0, 1, 200, 0, 1)),          // with too long a prefix
		join(head(1, 1, 0, 0), shop, inA, record([]byte{0})),                            // a query with an answer
		join(head(1, 0, 0, 0), []byte("\x08orders\x00\n\x04sh.p\x03\xff\\\"\x07isthmus\x08internal\x00"), inA),
		join(head(1, 0, 0, 0), []byte("\x0dxn--bcher-kva\x04shop\x07isthmus\x08internal\x00"), inA),
		join(head(1, 0, 0, 0), []byte("\x02\xc3\xbc\x01*\x07isthmus\x08internal\x00"), inA),
		join(head(1, 0, 0, 0), shop, inA, make([]byte, 1000)), // more than was said
	}
	for opcode := range byte(16) {
		p := join(head(1, 0, 0, 0), shop, inA)
		p[2] = opcode << 3
		packets = append(packets, p)
	}
	for _, kind := range []uint16{0, 1, 2, 6, 12, 16, 28, 33, 41, 64, 65, 249, 250, 251, 252, 253, 255, 65535} {
		for _, class := range []uint16{0, 1, 3, 254, 255, 65535} {
			p := join(head(1, 0, 0, 1), shop, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), class), opt(0))
			packets = append(packets, p)
		}
	}
	return packets
}

// mutate changes a packet as fuzzers do: bits, bytes, lengths, pieces of another.
func mutate(random *rand.Rand, p, other []byte) []byte {
	p = bytes.Clone(p)
	for range 1 + random.IntN(4) {
		if len(p) == 0 {
			return p
		}
		at := random.IntN(len(p))
		switch random.IntN(8) {
		case 0:
			p[at] ^= 1 << random.IntN(8)
		case 1:
			p[at] = byte(random.Uint32())
		case 2:
			p[at] = []byte{0, 1, 12, 41, 63, 64, 0x7f, 0x80, 0xc0, 0xff}[random.IntN(10)]
		case 3:
			p = p[:at]
		case 4:
			p = append(p[:at:at], p[min(len(p), at+1+random.IntN(8)):]...)
		case 5:
			p = append(p[:at:at], append([]byte{0xc0, byte(random.IntN(len(p)))}, p[at:]...)...)
		case 6:
			if len(other) > 0 {
				from := random.IntN(len(other))
				p = append(p[:at:at], other[from:]...)
			}
		case 7:
			p = append(p, p[at:]...)
		}
	}
	return p[:min(len(p), 4000)]
}

// TestPacketsThatAreNoQueries sends 100,000 packets, random ones and such as were queries once.
// What is answered has the packet's id and its question; what comes is never more than one
// response for each; and afterwards the server is as it was.
func TestPacketsThatAreNoQueries(t *testing.T) {
	g := newTarget(t, map[string]any{"forward": []string{"127.0.0.53:53"}})
	g.upstreamIn(t, "127.0.0.53:53", true)
	corpus := oddPackets()
	for _, typ := range []uint16{mdns.TypeA, mdns.TypeTXT, mdns.TypeSRV, mdns.TypeHTTPS, mdns.TypeANY, mdns.TypePTR, mdns.TypeSOA} {
		for _, name := range []string{zone, "orders.shop." + zone, "_dapr._tcp.orders.shop.east." + zone, "10-77-1-101.orders.shop.west." + zone, "101.1.77.10.in-addr.arpa.", "good.example."} {
			q := new(mdns.Msg).SetQuestion(name, typ).SetEdns0(1232, true)
			q.IsEdns0().Option = []mdns.EDNS0{
				&mdns.EDNS0_COOKIE{Code: mdns.EDNS0COOKIE, Cookie: "0102030405060708010000005f5e100000112233445566aa"[:48]},
				&mdns.EDNS0_SUBNET{Code: mdns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.IPv4(127, 9, 0, 11)},
				&mdns.EDNS0_NSID{Code: mdns.EDNS0NSID},
			}
			p, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			corpus = append(corpus, p)
		}
	}
	if dir := os.Getenv(corpusVariable); dir != "" {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files in %s: %v", corpusVariable, dir, err)
		}
		for _, f := range files {
			p, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			corpus = append(corpus, p[:min(len(p), 4000)])
		}
	}
	before := g.resident(t)
	for _, from := range []netip.Addr{instanceOfShop, netip.MustParseAddr("127.66.1.1")} {
		s := &sender{conn: g.socket(t, from), random: rand.New(rand.NewPCG(1, uint64(from.As4()[1])))}
		for _, p := range corpus {
			s.send(t, bytes.Clone(p))
		}
		for s.sent < 50_000 {
			p := corpus[s.random.IntN(len(corpus))]
			if s.random.IntN(10) == 0 {
				p = make([]byte, s.random.IntN(600))
				for i := range p {
					p[i] = byte(s.random.Uint32())
				}
			}
			s.send(t, mutate(s.random, p, corpus[s.random.IntN(len(corpus))]))
		}
		s.settle(t)
		t.Logf("from %s: %d packets, %d responses", from, s.sent, s.answered)
		if s.answered == 0 {
			t.Error("nothing was answered")
		}
	}
	if after := g.resident(t); after > before+grown {
		t.Errorf("memory grew from %d to %d MiB", before>>20, after>>20)
	}
	g.well(t, instanceOfShop)
	if err := g.wellAt(instanceOfShop, "tcp", patience); err != nil {
		t.Error(err)
	}
}

// sender sends packets each with an id of its own, some at a time, and checks what comes.
type sender struct {
	conn     *net.UDPConn
	random   *rand.Rand
	sent     int
	answered int
	out      map[uint16][]byte // sent and not answered yet
	next     uint16
}

func (s *sender) send(t *testing.T, p []byte) {
	t.Helper()
	s.next++
	if s.out == nil {
		s.out = map[uint16][]byte{}
	}
	if len(p) >= 2 {
		binary.BigEndian.PutUint16(p, s.next)
		s.out[s.next] = p
	}
	if _, err := s.conn.Write(p); err != nil {
		t.Fatal(err)
	}
	if s.sent++; s.sent%64 == 0 {
		s.settle(t)
	}
}

// settle sends queries of ours until one of them is answered. Others may still be on their
// way, of those that are forwarded, so they are kept for a while.
func (s *sender) settle(t *testing.T) {
	t.Helper()
	ours := map[uint16]bool{}
	open := func() bool {
		for id := range ours {
			if s.out[id] == nil {
				return false
			}
		}
		return true
	}
	buffer := make([]byte, 65535)
	end, again := time.Now().Add(patience), time.Now()
	for open() || len(ours) == 0 {
		if !time.Now().Before(again) {
			s.next++
			p, err := new(mdns.Msg).SetQuestion(fmt.Sprintf("n%d.shop.%s", s.next, zone), mdns.TypeSOA).Pack()
			if err != nil {
				t.Fatal(err)
			}
			binary.BigEndian.PutUint16(p, s.next)
			s.out[s.next], ours[s.next] = p, true
			s.conn.Write(p)
			again = time.Now().Add(time.Second)
		}
		s.conn.SetReadDeadline(again)
		n, err := s.conn.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end):
		case err != nil:
			t.Fatalf("no answer any more, after %d packets: %v", s.sent, err)
		default:
			s.check(t, buffer[:n])
		}
	}
	for old := range s.out {
		if s.next-old > 20_000 {
			delete(s.out, old)
		}
	}
}

func (s *sender) check(t *testing.T, m []byte) {
	t.Helper()
	if len(m) < 12 || m[2]&0x80 == 0 {
		t.Fatalf("no response: %x", m)
	}
	id := binary.BigEndian.Uint16(m)
	p, ok := s.out[id]
	if !ok {
		t.Fatalf("nobody asked for %x", m)
	}
	if len(p) < 12 || p[2]&0x80 != 0 {
		t.Fatalf("%x, which is no query, was answered: %x", p, m)
	}
	if new(mdns.Msg).Unpack(m) != nil {
		t.Fatalf("to %x: %x can't be read", p, m)
	}
	if binary.BigEndian.Uint16(m[4:]) > 0 {
		end := 12
		for end < len(m) && m[end] != 0 {
			end += int(m[end]) + 1
		}
		if end += 5; end > len(m) || end > len(p) || !bytes.Equal(m[12:end], p[12:end]) {
			t.Fatalf("to %x another question was answered: %x", p, m)
		}
	}
	if len(m) > 1232 {
		t.Fatalf("to %x %d bytes were sent", p, len(m))
	}
	delete(s.out, id)
	s.answered++
}
