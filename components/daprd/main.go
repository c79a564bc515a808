// Command daprd is Dapr's sidecar with the name-resolution component "isthmus".
package main

import "github.com/dapr/dapr/cmd/daprd/app"

func main() { app.Run() }
