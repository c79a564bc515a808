// Package rawgrpc lets a gRPC server send and receive messages in their wire format, where a
// decoded message would cost too much memory.
package rawgrpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what codec embeds
	"google.golang.org/grpc/mem"
)

// Encoded is a message to send that is encoded already.
type Encoded interface{ Buffers() mem.BufferSlice }

// Received is a message that is not decoded yet.
type Received struct{ Bytes []byte }

// ServerCodec has a server send [Encoded] and receive *[Received] as they are, and all other
// messages as ever.
func ServerCodec() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")})
}

type codec struct{ encoding.CodecV2 }

// Marshal returns the bytes to send for v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(Encoded); ok {
		return e.Buffers(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes data into v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*Received); ok {
		r.Bytes = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
