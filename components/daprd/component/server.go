package component

import (
	"errors"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
)

// addGlobalServerOptions is gRPC's hook for options of every server in the process: daprd's
// internal one, for other sidecars, and that of its API, for its own app. gRPC's own observability
// modules add their interceptors by it. daprd offers no place for ours.
//
//go:linkname addGlobalServerOptions google.golang.org/grpc/internal.AddGlobalServerOptions
var addGlobalServerOptions any

// RegisterServer adds the component's interceptors to the gRPC servers that daprd makes from now
// on. They come after daprd's own.
func (c *Component) RegisterServer() error {
	add, ok := addGlobalServerOptions.(func(...grpc.ServerOption))
	if !ok {
		return errors.New("register the interceptors: this version of gRPC has no hook to add them to every server; build daprd with the gRPC version in go.mod")
	}
	add(c.ServerOptions()...)
	return nil
}

// ServerOptions returns the interceptors: the guard's, and those that name the caller.
func (c *Component) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(c.unary, c.tellUnary), grpc.ChainStreamInterceptor(c.stream, c.tellStream)}
}
