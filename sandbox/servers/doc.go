// Package servers runs the servers that users keep their configuration in, real ones, on
// loopback: one file for each, and a link to them that can be cut. Tests and benchmarks
// of the config stores stand on it.
package servers
