// Package grpc calls the function that the advisory names.
package grpc

import "google.golang.org/grpc/internal/transport"

// NewClient calls it.
func NewClient() { transport.NewHTTP2Client() }
