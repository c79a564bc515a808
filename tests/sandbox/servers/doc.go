// Package servers runs the servers that users have beside Isthmus, real ones, on loopback:
// those that they keep their configuration in, and those that their programs ask for names.
// There is a file for each kind, and a link to them that can be cut. Tests and benchmarks
// stand on it.
package servers
