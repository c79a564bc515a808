package gateway

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/iotest"
	"time"
)

// inRecords spreads the handshake message of a one-record hello over records of a size.
func inRecords(hello []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(hello[5:], size) {
		out = append(out, hello[:3]...)
		out = binary.BigEndian.AppendUint16(out, uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// longHello is a ClientHello of a size: that of Go, with a padding extension (RFC 7685)
// that fills it up, in as many records as that takes.
func longHello(host string, size int) []byte {
	message := slices.Clone(hello(host)[5:])
	at := 4 + 2 + 32                                     // header, version, random
	at += 1 + int(message[at])                           // session
	at += 2 + int(binary.BigEndian.Uint16(message[at:])) // cipher suites
	at += 1 + int(message[at])                           // compression
	room := size - len(message) - 4
	message = append(message, 0, 21, byte(room>>8), byte(room))
	message = append(message, make([]byte, room)...)
	binary.BigEndian.PutUint16(message[at:], uint16(len(message)-at-2))
	message[1], message[2], message[3] = byte((len(message)-4)>>16), byte((len(message)-4)>>8), byte(len(message)-4)
	return inRecords(slices.Concat([]byte{22, 3, 1, 0, 0}, message), 1<<14)
}

// The ClientHello arrives in every way that TCP and TLS allow; the app gets exactly it.
func TestHelloHoweverItComes(t *testing.T) {
	got := make(chan []byte, 1)
	addr := backend(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- b
	})
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {addr}}))
	whole := hello(ordersHost)
	for what, send := range map[string][][]byte{
		"whole":                     {whole},
		"byte by byte":              slices.Collect(slices.Chunk(whole, 1)),
		"in segments of 100":        slices.Collect(slices.Chunk(whole, 100)),
		"with bytes that follow":    {slices.Concat(whole, []byte("early data"))},
		"in two records":            {inRecords(whole, 1000)},
		"in records of 7":           {inRecords(whole, 7)},
		"in records and segments":   slices.Collect(slices.Chunk(inRecords(whole, 50), 33)),
		"16 KiB long":               {longHello(ordersHost, maxHello-recordHeader)},
		"16 KiB long, in segments":  slices.Collect(slices.Chunk(longHello(ordersHost, maxHello-recordHeader), 1448)),
		"TLS 1.2":                   {helloOf(&tls.Config{ServerName: ordersHost, MaxVersion: tls.VersionTLS12})},
		"TLS 1.0":                   {helloOf(&tls.Config{ServerName: ordersHost, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10})},
		"with many protocols named": {helloOf(&tls.Config{ServerName: ordersHost, NextProtos: slices.Repeat([]string{"h2"}, 1000)})},
	} {
		t.Run(what, func(t *testing.T) {
			c := dialTCP(t, gw.addr)
			for _, part := range send {
				c.Write(part)
				if len(send) < 100 {
					time.Sleep(100 * time.Microsecond) // apart, most likely
				}
			}
			c.CloseWrite()
			select {
			case b := <-got:
				if want := slices.Concat(send...); !bytes.Equal(b, want) {
					t.Errorf("the app got %d bytes, not the %d that were sent", len(b), len(want))
				}
			case <-time.After(patience):
				t.Errorf("nothing arrived:\n%s", gw.log)
			}
		})
	}
}

func TestRefusesWhatIsNoHello(t *testing.T) {
	hasty := serve(t, Config{HelloTimeout: 100 * time.Millisecond}, exports(1, nil))
	patient := serve(t, Config{}, exports(1, nil))
	whole := hello(ordersHost)
	broken := slices.Clone(whole)
	broken[43] = 200 // the length of the session id
	endless := inRecords(slices.Concat([]byte{22, 3, 1, 0, 0, 1, 0, 255, 255}, make([]byte, 65531)), 3)
	for _, c := range []struct {
		what   string
		bytes  []byte
		end    bool
		reason reason
		answer []byte
	}{
		{"nothing", nil, false, helloTimeout, nil},
		{"nothing, and the end", nil, true, helloAborted, nil},
		{"half a hello", whole[:700], false, helloTimeout, nil},
		{"half a hello, and the end", whole[:700], true, helloAborted, nil},
		{"HTTP/1.1", []byte("GET / HTTP/1.1\r\nHost: orders\r\n\r\n"), false, notTLS, nil},
		{"SSH", []byte("SSH-2.0-OpenSSH_9.2\r\n"), false, notTLS, nil},
		{"nearly HTTP/2", []byte("PRI * HTTP/1.1\r\n\r\n"), false, notTLS, nil},
		{"half of HTTP/2", []byte("PRI * HT"), false, helloTimeout, nil},
		{"a garbled hello", broken, false, badHello, []byte{21, 3, 1, 0, 2, 2, 50}},
		{"another handshake message", []byte{22, 3, 1, 0, 4, 20, 0, 0, 0}, false, badHello, []byte{21, 3, 1, 0, 2, 2, 10}},
		{"a hello longer than 64 KiB", []byte{22, 3, 1, 0, 4, 1, 1, 0, 1}, false, badHello, []byte{21, 3, 1, 0, 2, 2, 80}},
		{"a hello longer than 16 KiB", longHello(ordersHost, 17<<10), false, helloTooLong, []byte{21, 3, 1, 0, 2, 2, 80}},
		{"records that never come to an end", endless, false, helloTooLong, []byte{21, 3, 1, 0, 2, 2, 80}},
	} {
		t.Run(c.what, func(t *testing.T) {
			gw := patient
			if c.reason == helloTimeout {
				gw = hasty
			}
			before := gw.refused(c.reason)
			conn := dialTCP(t, gw.addr)
			conn.Write(c.bytes)
			if c.end {
				conn.CloseWrite()
			}
			answer, _ := io.ReadAll(conn)
			if !bytes.Equal(answer, c.answer) {
				t.Errorf("answered % x; want % x", answer, c.answer)
			}
			if gw.refused(c.reason) != before+1 {
				t.Errorf("not counted as %s:\n%s", c.reason, gw.log)
			}
		})
	}
}

// fromBytes is a connection from which bytes can be read, and then the end.
type fromBytes struct {
	net.Conn
	io.Reader
}

func (f fromBytes) Read(p []byte) (int, error) { return f.Reader.Read(p) }

// nameIn reads the server name of a hello that comes through a reader.
func nameIn(r io.Reader) (name string, kept, answer []byte, err error) {
	in := newReplay(fromBytes{Reader: r})
	defer in.release()
	var o opening
	for o.undecided(in.buf) {
		if err := in.fill(); err != nil {
			return "", bytes.Clone(in.buf), nil, err
		}
	}
	if in.buf[0] != tlsHandshake {
		return "", bytes.Clone(in.buf), nil, errors.New("not TLS")
	}
	name, answer, err = serverName(in.buf, &tls.Config{GetConfigForClient: stopAtHello})
	return name, bytes.Clone(in.buf), answer, err
}

// serverNameByTLS is what crypto/tls, on its own, makes of the same bytes.
func serverNameByTLS(b []byte) (name string, ok bool) {
	conn := tls.Server(&recorderOf{bytes.NewReader(b), recorder{}}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name, ok = h.ServerName, true
			return nil, errors.New("enough")
		},
	})
	conn.Handshake()
	return name, ok
}

type recorderOf struct {
	io.Reader
	recorder
}

func (r *recorderOf) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func FuzzHello(f *testing.F) {
	whole := hello(ordersHost)
	for _, seed := range [][]byte{
		whole, // with an ML-KEM key share: 1.5 KiB
		inRecords(whole, 500),
		inRecords(whole, 1),
		helloOf(&tls.Config{ServerName: ordersHost, MaxVersion: tls.VersionTLS12}),
		helloOf(&tls.Config{InsecureSkipVerify: true}), // no SNI
		whole[:100],
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{22, 3, 1, 0, 0, 22, 3, 1, 0, 0},
		{21, 3, 1, 0, 2, 2, 80},
		{0x80, 0x2e, 1, 3, 1},
	} {
		f.Add(seed, uint16(7))
	}
	f.Fuzz(func(t *testing.T, b []byte, segment uint16) {
		name, kept, answer, err := nameIn(bytes.NewReader(b))
		if !bytes.HasPrefix(b, kept) {
			t.Fatal("what was kept is not what came")
		}
		want, ok := serverNameByTLS(b)
		_, plain := plainServerName(kept) // the instance refuses what crypto/tls does not read
		if len(b) > 0 && b[0] == tlsHandshake && len(b) <= maxHello && (ok || !plain) && (ok != (err == nil) || name != want) {
			t.Fatalf("read %q, %v; crypto/tls reads %q, %v", name, err, want, ok)
		}
		split := io.Reader(&segments{b, int(segment)%2000 + 1})
		if segment == 0 {
			split = iotest.OneByteReader(bytes.NewReader(b))
		}
		name2, _, answer2, err2 := nameIn(split)
		tooLong := errors.Is(err, errTooLong) || errors.Is(err2, errTooLong) // by its own word: what follows may be read or not
		if len(b) <= maxHello && (name2 != name || (err == nil) != (err2 == nil) || !tooLong && !bytes.Equal(answer, answer2)) {
			t.Fatalf("in segments: %q, %v, answer % x; whole: %q, %v, % x", name2, err2, answer2, name, err, answer)
		}
		if err == nil && len(answer) > 0 {
			t.Fatalf("an answer to a good hello: % x", answer)
		}
	})
}

// segments is a reader that yields at most size bytes at once.
type segments struct {
	left []byte
	size int
}

func (s *segments) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.left[:min(s.size, len(s.left))])
	s.left = s.left[n:]
	return n, nil
}

func TestMostHellosAreReadWithoutTLS(t *testing.T) {
	for name, test := range map[string]struct {
		hello []byte
		want  string
	}{
		"of Go":              {hello(ordersHost), ordersHost},
		"of TLS 1.2":         {helloOf(&tls.Config{ServerName: ordersHost, MaxVersion: tls.VersionTLS12}), ordersHost},
		"in several records": {inRecords(hello(ordersHost), 500), ""},
		"without a name":     {helloOf(&tls.Config{InsecureSkipVerify: true}), ""},
		"cut off":            {hello(ordersHost)[:700], ""},
		"with more behind":   {append(hello(ordersHost), 22), ordersHost},
	} {
		if got, ok := plainServerName(test.hello); ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: %q, %t; want %q", name, got, ok, test.want)
		}
	}
}

func BenchmarkServerName(b *testing.B) {
	whole := hello(ordersHost)
	config := &tls.Config{GetConfigForClient: stopAtHello}
	for name, b2 := range map[string][]byte{"plain": whole, "by crypto, tls": inRecords(whole, len(whole)-100)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := serverName(b2, config); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestLongHelloIsWhatItSays(t *testing.T) {
	b := longHello(ordersHost, maxHello-recordHeader)
	name, ok := serverNameByTLS(b)
	if len(b) != maxHello || name != ordersHost || !ok {
		t.Errorf("%d bytes; crypto/tls reads %q, %v", len(b), name, ok)
	}
}
