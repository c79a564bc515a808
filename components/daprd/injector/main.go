// Command injector is Dapr's injector, unchanged: it gives pods in Kubernetes their sidecar.
package main

import "github.com/dapr/dapr/cmd/injector/app"

func main() { app.Run() }
