package gateway

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/net/http2"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// greeting is what a client said first, and to whom.
type greeting struct {
	host   string // SNI, or :authority without its port; "" when there is none
	stream uint32 // of the first request of HTTP/2 without TLS; 0 with TLS
	bytes  []byte // what a backend must be given; valid until the replay is released
}

// tlsHandshake is the type of a TLS record that holds handshake messages (RFC 8446, 5.1).
const tlsHandshake = 22

// greet reads a connection up to the name of the app that it wants.
func (s *serving) greet(in *replay) (greeting, *refusal) {
	var o opening
	for o.undecided(in.buf) {
		if err := in.fill(); err != nil {
			refused := helloFailed(err)
			if refused.reason == helloTooLong { // nothing but TLS can be
				refused.answer = alertInternalError
			}
			return greeting{}, refused
		}
	}
	switch {
	case in.buf[0] == tlsHandshake:
		return s.greetTLS(in)
	case !strings.HasPrefix(string(in.buf[:min(len(in.buf), len(http2.ClientPreface))]), http2.ClientPreface):
		if proxied(in.buf) {
			return greeting{}, &refusal{reason: proxyHeader, answer: alertUnexpectedMessage}
		}
		return greeting{}, &refusal{reason: notTLS}
	case !s.cfg.Plaintext:
		return greeting{}, &refusal{reason: plaintextOff}
	}
	return greetHTTP2(in, in.Conn, s.id)
}

// proxied tells whether a connection begins with the PROXY protocol, as far as it was read.
func proxied(b []byte) bool {
	for _, start := range []string{"PROXY ", "\r\n\r\n\x00\r\nQUIT\n"} {
		if n := min(len(b), len(start)); string(b[:n]) == start[:n] {
			return true
		}
	}
	return false
}

func (s *serving) greetTLS(in *replay) (greeting, *refusal) {
	host, answer, err := serverName(in.buf, s.hello)
	switch {
	case errors.Is(err, errCheckUnnamed):
		return greeting{}, &refusal{reason: noName, answer: alertMissingExtension}
	case errors.Is(err, errTooLong):
		return greeting{}, &refusal{reason: helloTooLong, err: err, answer: alertInternalError}
	case err != nil:
		return greeting{}, &refusal{reason: badHello, err: err, answer: answer}
	}
	return greeting{host: host, bytes: in.buf}, nil
}

// opening is how far the first bytes of a connection have been looked at. Nothing but lengths
// is, and none of them twice, so it costs little to wait for more.
type opening struct {
	next   int                 // where the next record of TLS begins
	length int                 // of what the records before it hold
	header [messageHeader]byte // of the handshake message, as far as it is there
}

// undecided tells whether more of a connection has to be read before it can be told what its
// client wants. b is everything so far.
func (o *opening) undecided(b []byte) bool {
	switch {
	case len(b) == 0:
		return true
	case b[0] == tlsHandshake:
		return o.helloUnfinished(b)
	}
	return len(b) < len(http2.ClientPreface) && http2.ClientPreface[:len(b)] == string(b)
}

// helloUnfinished tells whether a ClientHello goes on after the last of these records, or
// one of the records does. It is false for what crypto/tls refuses by its headers alone.
func (o *opening) helloUnfinished(b []byte) bool {
	for {
		record := b[o.next:]
		if len(record) < recordHeader {
			return true
		}
		size := int(binary.BigEndian.Uint16(record[3:]))
		if record[0] != tlsHandshake || size == 0 || size > maxRecord {
			return false
		}
		if len(record) < recordHeader+size {
			return true
		}
		if o.length < messageHeader {
			copy(o.header[o.length:], record[recordHeader:recordHeader+size])
		}
		o.next += recordHeader + size
		o.length += size
		if o.length < messageHeader {
			continue
		}
		message := messageHeader + int(o.header[1])<<16 + int(binary.BigEndian.Uint16(o.header[2:]))
		if o.length >= message || message > maxHello {
			return false
		}
	}
}

const (
	recordHeader  = 5       // of TLS: type, version, length
	maxRecord     = 1 << 14 // that it may hold
	messageHeader = 4       // of a handshake message: type, length
)

// errHelloRead ends a handshake that is only there to have its ClientHello read.
var errHelloRead = errors.New("ClientHello read")

// helloConn is a connection for crypto/tls, which is to read a ClientHello and no more.
type helloConn struct {
	net.Conn          // none
	left       []byte // to be read
	answer     []byte // that was written: an alert
	serverName string
}

func (c *helloConn) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		return 0, errTooLong
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *helloConn) Write(p []byte) (int, error) {
	c.answer = append(c.answer, p...)
	return len(p), nil
}

// errCheckUnnamed is errHelloRead for a check whose server name was lost on the way. Callers of apps get
// the answer that they always got.
var errCheckUnnamed = fmt.Errorf("%w: a check without a server name", errHelloRead)

// stopAtHello notes the server name of a ClientHello and ends the handshake.
func stopAtHello(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c, ok := hello.Conn.(*helloConn); ok {
		c.serverName = hello.ServerName
	}
	if hello.ServerName == "" && slices.Contains(hello.SupportedProtos, catalog.CheckProtocol) {
		return nil, errCheckUnnamed
	}
	return nil, errHelloRead
}

// serverName returns the server name of a ClientHello, in however many records it is, or the
// answer to a broken one. Whatever plainServerName does not read, crypto/tls does; config
// stops it there.
func serverName(hello []byte, config *tls.Config) (name string, answer []byte, err error) {
	if name, ok := plainServerName(hello); ok {
		return name, nil, nil
	}
	c := helloConn{left: hello}
	if err := tls.Server(&c, config).Handshake(); !errors.Is(err, errHelloRead) || errors.Is(err, errCheckUnnamed) {
		return "", c.answer, err
	}
	return c.serverName, nil, nil
}

// plainServerName reads the name in a ClientHello that is one record and has one name; nearly
// all are like that. It looks at nothing else, which takes a thirtieth of the time that
// crypto/tls takes. What it lets pass and crypto/tls would not, the instance refuses.
func plainServerName(hello []byte) (name string, ok bool) {
	var (
		in                                                    = cryptobyte.String(hello)
		record, message, session, suites, methods, extensions cryptobyte.String
		version                                               uint16
		kind                                                  uint8
	)
	if !in.ReadUint8(&kind) || kind != tlsHandshake || !in.ReadUint16(&version) || version>>8 != 3 ||
		!in.ReadUint16LengthPrefixed(&record) || // what follows is not looked at
		!record.ReadUint8(&kind) || kind != clientHello || !record.ReadUint24LengthPrefixed(&message) || !record.Empty() ||
		!message.Skip(2+32) || // version, random
		!message.ReadUint8LengthPrefixed(&session) || !message.ReadUint16LengthPrefixed(&suites) ||
		!message.ReadUint8LengthPrefixed(&methods) || !message.ReadUint16LengthPrefixed(&extensions) || !message.Empty() {
		return "", false
	}
	for !extensions.Empty() {
		var extension uint16
		var data, names, host cryptobyte.String
		switch {
		case !extensions.ReadUint16(&extension) || !extensions.ReadUint16LengthPrefixed(&data):
			return "", false
		case extension != serverNameExtension:
		case name != "" || !data.ReadUint16LengthPrefixed(&names) || !data.Empty() ||
			!names.ReadUint8(&kind) || kind != hostName || !names.ReadUint16LengthPrefixed(&host) || !names.Empty():
			return "", false
		default:
			name = string(host)
		}
	}
	return name, name != "" && !strings.HasSuffix(name, ".")
}

// Of RFC 8446, 4 and RFC 6066, 3.
const (
	clientHello         = 1
	serverNameExtension = 0
	hostName            = 0
)

// helloFailed tells why no name could be read.
func helloFailed(err error) *refusal {
	r := &refusal{reason: badHello, err: err}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.reason = helloTimeout
	case errors.Is(err, errTooLong):
		r.reason = helloTooLong
	case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || isReset(err):
		r.reason = helloAborted
	}
	return r
}

// withoutPort is the host of an :authority.
func withoutPort(authority string) string {
	if !strings.Contains(authority, ":") {
		return authority
	}
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		return authority
	}
	return host
}
