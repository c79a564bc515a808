package gateway

import (
	"io"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// greetHTTP2 reads an HTTP/2 connection up to its first request. The gateway has to
// speak first: gRPC clients send no request before the server's SETTINGS. It sends
// empty ones, which promise nothing that a backend's own, coming later, could break.
//
// The client acknowledges each SETTINGS frame. The backend knows of its own only, so
// the first acknowledgement is left out of what it is given. For that it must have
// come: clients that send their first request at once acknowledge after it. How much
// such a client can send meanwhile is bound by HTTP/2's own flow control, 64 KiB.
//
// HTTP/2 without TLS is for development, so what goes wrong here is told to the
// client in as many words as it can show (see refuseHTTP2).
func greetHTTP2(in *replay, out io.Writer) (greeting, *refusal) {
	if _, err := io.CopyN(io.Discard, in, int64(len(http2.ClientPreface))); err != nil {
		return greeting{}, helloFailed(err, in)
	}
	frames := http2.NewFramer(out, in)
	if err := frames.WriteSettings(); err != nil {
		return greeting{}, helloFailed(err, in)
	}
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	frames.MaxHeaderListSize = maxGreeting
	frames.SetMaxReadFrameSize(maxFrame)
	p := prelude{in: in, frames: frames}
	for !p.acknowledged || p.request == nil {
		if err := p.next(); err != nil {
			return greeting{}, helloFailed(err, in)
		}
	}
	host := withoutPort(p.request.PseudoValue("authority"))
	return greeting{host: host, stream: p.request.StreamID, bytes: p.bytes()}, nil
}

// maxFrame is the largest frame that a client may send to a server whose SETTINGS
// say nothing else (RFC 9113, 6.5.2).
const maxFrame = 16384

// prelude is what an HTTP/2 client sends up to its first request.
type prelude struct {
	in           *replay
	frames       *http2.Framer
	acknowledged bool
	ackAt        int // where in the bytes the acknowledgement stands
	ackEnd       int
	request      *http2.MetaHeadersFrame
}

// next reads one frame. The framer takes no byte beyond it.
func (p *prelude) next() error {
	start := p.in.off
	frame, err := p.frames.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() && !p.acknowledged {
			p.acknowledged, p.ackAt, p.ackEnd = true, start, p.in.off
		}
	case *http2.MetaHeadersFrame:
		if p.request == nil {
			p.request = f
		}
	}
	return nil
}

// bytes are all that was read, without the acknowledgement.
func (p *prelude) bytes() []byte {
	return slices.Delete(p.in.buf, p.ackAt, p.ackEnd)
}
