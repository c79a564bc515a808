package dial

import (
	"net"
	"sync"
)

// preface is what a client sends first on an HTTP/2 connection (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const frameHeaderSize = 9 // bytes (RFC 9113, 4.1)

// emptySettings is a SETTINGS frame that changes nothing. Servers acknowledge it as any other.
// gRPC's servers close a connection after a few PING frames.
var emptySettings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// frameWriter follows the frames that gRPC writes, so that a ping goes between two of them.
type frameWriter struct {
	net.Conn

	mu          sync.Mutex // held while writing
	remaining   int        // bytes until the next frame's header
	header      [frameHeaderSize]byte
	headerBytes int // bytes of header seen so far
}

func (f *frameWriter) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.Conn.Write(b)
	f.track(b[:n])
	return n, err
}

// track records what was written.
func (f *frameWriter) track(b []byte) {
	for len(b) > 0 {
		if f.remaining > 0 {
			n := min(f.remaining, len(b))
			f.remaining -= n
			b = b[n:]
			continue
		}
		n := copy(f.header[f.headerBytes:], b)
		f.headerBytes += n
		b = b[n:]
		if f.headerBytes == frameHeaderSize {
			f.remaining = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			f.headerBytes = 0
		}
	}
}

// ping writes an empty SETTINGS frame. It returns false if another frame is half written, or if
// the write failed.
func (f *frameWriter) ping() bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if f.remaining > 0 || f.headerBytes > 0 {
		return false
	}
	_, err := f.Conn.Write(emptySettings)
	return err == nil
}
