package dns

import (
	"context"
	"encoding/binary"
	"io"
	"net"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/forward"
)

// through is a resolver whose every server is the forwarder: names that the server itself
// wants to know are asked where other names are, with the same cache.
func through(f *forward.Forwarder) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answerAll(context.WithoutCancel(ctx), ours, f)
		return theirs, nil
	}}
}

// answerAll answers as a server for TCP does, until the other side hangs up.
func answerAll(ctx context.Context, conn net.Conn, f *forward.Forwarder) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		response := f.Forward(ctx, query, nil)
		if len(response) == 0 {
			return // it was no query
		}
		framed := binary.BigEndian.AppendUint16(make([]byte, 0, len(length)+len(response)), uint16(len(response)))
		response = append(framed, response...)
		if _, err := conn.Write(response); err != nil {
			return
		}
	}
}
