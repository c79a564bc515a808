// Command stock is Dapr's sidecar as Dapr builds it, without Isthmus: for tests of what
// a user has who replaces nothing.
//
// Dapr's own image has all components, which takes long to build. With the tag
// stablecomponents this has, beside the stable ones, the resolvers that only
// allcomponents has.
package main

import "github.com/dapr/dapr/cmd/daprd/app"

func main() {
	registerResolvers()
	app.Run()
}
