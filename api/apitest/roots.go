package apitest

import (
	_ "embed"
	"fmt"
	"strings"
)

// Certificates as PEM: two roots, and one that is no root. Nobody has their keys.
var (
	//go:embed testdata/east.pem
	EastRoot string
	//go:embed testdata/north.pem
	NorthRoot string
	//go:embed testdata/leaf.pem
	Leaf string
)

// Key looks like a private key, which no object may have.
const Key = "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0c2VjcmV0\n-----END EC PRIVATE KEY-----\n"

// Trusting is a Cluster that is checked against roots.
func Trusting(roots string) string {
	return Object("Cluster", "{name: east}", "\n  network: a\n  trust:\n    domain: east.example\n    roots: |\n      "+
		strings.ReplaceAll(strings.TrimSuffix(roots, "\n"), "\n", "\n      "))
}

// Instance is an AppInstance with something in its spec beside its app.
func Instance(spec string) string {
	return Object("AppInstance", "{namespace: shop, name: orders-vm1}", "{app: orders, "+spec+"}")
}

// Checked is an AppInstance with a health check.
func Checked(check string) string {
	return Instance(fmt.Sprintf("address: \"10.0.0.5:50002\", check: {%s}", check))
}
