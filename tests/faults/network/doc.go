// Package network joins network namespaces by links that can be slow, lose packets or
// swallow them, each per direction and per address. It forwards the packets itself, so it
// needs nothing of the kernel but namespaces and TUN devices, both of which end with the
// process. It is there on Linux only.
package network
