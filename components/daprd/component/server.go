package component

import (
	"errors"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/components/dial"
)

// addGlobalServerOptions is gRPC's hook for options of every server in the process: daprd's
// internal one, for other sidecars, and that of its API, for its own app. gRPC's own observability
// modules add their interceptors by it. daprd offers no place for ours.
//
//go:linkname addGlobalServerOptions google.golang.org/grpc/internal.AddGlobalServerOptions
var addGlobalServerOptions any

// RegisterInterceptors adds the component's interceptors to the gRPC servers and connections that
// daprd makes from now on. Those of servers come after daprd's own. After an error there are none.
func (c *Component) RegisterInterceptors() error {
	add, ok := addGlobalServerOptions.(func(...grpc.ServerOption))
	if !ok {
		return errors.New("gRPC " + grpc.Version + " has no hook to add interceptors to every server")
	}
	if err := dial.AddToAll(c.DialOptions()...); err != nil {
		return err
	}
	add(c.ServerOptions()...)
	return nil
}

// ServerOptions returns the interceptors: the guard's, and those that name the caller.
func (c *Component) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(c.unary, c.tellUnary), grpc.ChainStreamInterceptor(c.stream, c.tellStream)}
}
