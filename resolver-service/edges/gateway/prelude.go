package gateway

import (
	"bytes"
	"errors"
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
//
// Its bytes have nothing that is never sent twice, by which a connection that comes back
// could be known. So each gateway adds a frame that names it; other servers ignore it.
func greetHTTP2(in *replay, out io.Writer, id gatewayID) (greeting, *refusal) {
	in.limit = maxPrelude
	if _, err := io.CopyN(io.Discard, in, int64(len(http2.ClientPreface))); err != nil {
		return greeting{}, helloFailed(err)
	}
	frames := http2.NewFramer(out, in)
	if err := frames.WriteSettings(); err != nil {
		return greeting{}, helloFailed(err)
	}
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	frames.MaxHeaderListSize = maxPrelude
	frames.SetMaxReadFrameSize(maxFrame)
	p := prelude{in: in, frames: frames, id: id}
	for !p.acknowledged || p.request == nil {
		if err := p.next(); err != nil {
			return greeting{}, helloFailed(err)
		}
	}
	if p.looped {
		return greeting{}, &refusal{reason: looped, host: p.request.PseudoValue("authority"), stream: p.request.StreamID}
	}
	host := withoutPort(p.request.PseudoValue("authority"))
	return greeting{host: host, stream: p.request.StreamID, bytes: p.bytes()}, nil
}

// maxFrame is the largest frame that a client may send to a server whose SETTINGS
// say nothing else (RFC 9113, 6.5.2).
const maxFrame = 16384

// gatewayID is what a gateway calls itself for as long as it runs.
type gatewayID [16]byte

// passedBy is the type of the frame with the ID of a gateway that a connection has passed.
// HTTP/2 leaves it to nobody, and has everybody ignore frames of unknown types (RFC 9113, 5.5).
const passedBy http2.FrameType = 0xbc

// prelude is what an HTTP/2 client sends up to its first request.
type prelude struct {
	in           *replay
	frames       *http2.Framer
	id           gatewayID
	looped       bool // it has passed this gateway before
	settingsEnd  int  // where in the bytes the client's first SETTINGS end
	acknowledged bool
	ackAt        int // where in the bytes the acknowledgement stands
	ackEnd       int
	request      *http2.MetaHeadersFrame
}

var errNoSettings = errors.New("an HTTP/2 connection that does not begin with SETTINGS")

// next reads one frame. The framer takes no byte beyond it.
func (p *prelude) next() error {
	start := p.in.off
	frame, err := p.frames.ReadFrame()
	if err != nil {
		return err
	}
	if p.settingsEnd == 0 {
		if f, ok := frame.(*http2.SettingsFrame); !ok || f.IsAck() {
			return errNoSettings
		}
		p.settingsEnd = p.in.off
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() && !p.acknowledged {
			p.acknowledged, p.ackAt, p.ackEnd = true, start, p.in.off
		}
	case *http2.UnknownFrame:
		p.looped = p.looped || f.Type == passedBy && bytes.Equal(f.Payload(), p.id[:])
	case *http2.MetaHeadersFrame:
		if p.request == nil {
			p.request = f
		}
	}
	return nil
}

// bytes are all that was read, without the acknowledgement, and with the gateway's frame
// after the client's SETTINGS, which must come first.
func (p *prelude) bytes() []byte {
	var frame bytes.Buffer
	http2.NewFramer(&frame, nil).WriteRawFrame(passedBy, 0, 0, p.id[:])
	return slices.Insert(slices.Delete(p.in.buf, p.ackAt, p.ackEnd), p.settingsEnd, frame.Bytes()...)
}
