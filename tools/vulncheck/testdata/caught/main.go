// Caught is a program with a known vulnerability: its vendored grpc stands for the release
// with GO-2026-6061, and has none of its code.
package main

import "google.golang.org/grpc"

func main() { grpc.NewClient() }
