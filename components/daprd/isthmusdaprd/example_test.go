package isthmusdaprd_test

import (
	"fmt"
	"log"

	"github.com/dapr/dapr/pkg/components/nameresolution"

	"github.com/isthmus-mesh/isthmus/components/daprd/isthmusdaprd"
)

func ExampleRegister() {
	stop, err := isthmusdaprd.Register(isthmusdaprd.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	// Here app.Run() of github.com/dapr/dapr/cmd/daprd/app runs daprd. It makes the component that the
	// Configuration names.
	component, err := nameresolution.DefaultRegistry.Create("isthmus", "v1", "")
	fmt.Println(component != nil, err)

	_, err = isthmusdaprd.Register(isthmusdaprd.Options{})
	fmt.Println(err)
	// Output:
	// true <nil>
	// isthmusdaprd: Register was called before; call it once in a process
}
