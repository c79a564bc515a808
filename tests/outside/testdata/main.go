// Command daprd is a daprd that somebody outside builds. Its environment says what it is without.
package main

import (
	"log"
	"os"
	_ "unsafe" // for go:linkname

	"github.com/dapr/dapr/cmd/daprd/app"
	"github.com/isthmus-mesh/isthmus/components/daprd/isthmusdaprd"
)

//go:linkname dialHook google.golang.org/grpc/internal.AddGlobalDialOptions
var dialHook any

//go:linkname serverHook google.golang.org/grpc/internal.AddGlobalServerOptions
var serverHook any

func main() {
	if os.Getenv("WITHOUT") == "hooks" {
		dialHook, serverHook = nil, nil
	}
	stop, err := isthmusdaprd.Register(isthmusdaprd.Options{
		NoDialer: os.Getenv("WITHOUT") == "dialer", NoGuard: os.Getenv("WITHOUT") == "guard",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	app.Run()
}
