package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/net/http2"
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
	first, err := in.peek(1)
	if err != nil {
		return greeting{}, helloFailed(err, in)
	}
	if first[0] == tlsHandshake {
		return s.greetTLS(in)
	}
	for n := 1; n <= len(http2.ClientPreface); n++ {
		got, err := in.peek(n)
		if err != nil {
			return greeting{}, helloFailed(err, in)
		}
		if got[n-1] != http2.ClientPreface[n-1] {
			return greeting{}, &refusal{reason: notTLS}
		}
	}
	if !s.cfg.Plaintext {
		return greeting{}, &refusal{reason: plaintextOff}
	}
	return greetHTTP2(in, in.Conn)
}

func (s *serving) greetTLS(in *replay) (greeting, *refusal) {
	host, err := serverName(in, s.hello)
	if err != nil {
		return greeting{}, helloFailed(err, in)
	}
	return greeting{host: host, bytes: in.buf}, nil
}

// errHelloRead ends a handshake that is only there to have its ClientHello read.
var errHelloRead = errors.New("ClientHello read")

// stopAtHello notes the server name of a ClientHello and ends the handshake.
func stopAtHello(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	in, ok := hello.Conn.(*replay)
	if ok {
		in.serverName = hello.ServerName
	}
	return nil, errHelloRead
}

// serverName lets crypto/tls read a ClientHello, in however many records and
// segments it comes, and returns its server name. config stops it there.
func serverName(in *replay, config *tls.Config) (string, error) {
	err := tls.Server(in, config).Handshake()
	if errors.Is(err, errHelloRead) {
		in.answer = in.answer[:0] // an alert that nobody is to see
		return in.serverName, nil
	}
	if in.err != nil {
		err = in.err
	}
	return "", err
}

// helloFailed tells why no name could be read.
func helloFailed(err error, in *replay) *refusal {
	r := &refusal{reason: badHello, err: err, answer: bytes.Clone(in.answer)}
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
