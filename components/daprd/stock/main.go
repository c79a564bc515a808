// Command stock is Dapr's sidecar without Isthmus, for tests with an unchanged daprd.
//
// Dapr's own image has all components, which take long to build. With the tag stablecomponents this
// command has the stable components, and the resolvers that otherwise need allcomponents.
package main

import "github.com/dapr/dapr/cmd/daprd/app"

func main() {
	registerResolvers()
	app.Run()
}
