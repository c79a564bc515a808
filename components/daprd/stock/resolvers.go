//go:build !allcomponents

package main

import (
	"github.com/dapr/components-contrib/nameresolution/hashicorp/consul"
	"github.com/dapr/components-contrib/nameresolution/nameformat"
	"github.com/dapr/dapr/pkg/components/nameresolution"
)

// registerResolvers registers the resolvers that cmd/daprd/components registers with allcomponents,
// under the same names.
func registerResolvers() {
	nameresolution.DefaultRegistry.RegisterComponent(consul.NewResolver, "hashicorp.consul", "consul")
	nameresolution.DefaultRegistry.RegisterComponent(nameformat.NewResolver, "nameformat")
}
