package wire

import (
	"errors"
	"io"

	"google.golang.org/grpc"
)

// Receive hands on all messages of a stream that a call opened, or returns the error of that call.
func Receive[M any](stream grpc.ServerStreamingClient[M], err error, take func(*M) error) error {
	for err == nil {
		var m *M
		if m, err = stream.Recv(); err == nil {
			err = take(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
