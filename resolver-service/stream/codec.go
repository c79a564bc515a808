package stream

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what codec embeds
	"google.golang.org/grpc/mem"
)

// codec is gRPC's own, except for two types that would cost too much memory as messages.
// [parseFirstRequest] reads requests, and answers are encoded once for many streams.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal returns the bytes to send for v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if d, ok := v.(*delivery); ok {
		return d.buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes data into v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*rawRequest); ok {
		r.bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// rawRequest is a WatchRequest that is not decoded yet.
type rawRequest struct{ bytes []byte }
