// Command daprd is Dapr's sidecar with the name-resolution component "isthmus". It takes daprd's
// flags and does everything that daprd does. A Configuration without that component works as in
// daprd.
//
// Build it with the tag stablecomponents or allcomponents, as daprd itself.
package main

import (
	"log"
	_ "time/tzdata" // for images, which have no files with time zones

	"github.com/dapr/dapr/cmd/daprd/app"

	"github.com/isthmus-mesh/isthmus/components/daprd/isthmusdaprd"
)

func main() {
	stop, err := isthmusdaprd.Register(isthmusdaprd.Options{Stores: stores()})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	app.Run()
}
