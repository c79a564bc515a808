// Package dns tests the DNS server as a whole, as users meet it: real services in networks
// of their own, asked by dig, kdig and drill, by Unbound and CoreDNS, and by the resolvers
// of glibc, musl, Go, Node and Java. It is there on Linux only.
package dns
