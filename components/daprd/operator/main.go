// Command operator is Dapr's operator, unchanged: it tells sidecars in Kubernetes their
// Configuration and components.
package main

import "github.com/dapr/dapr/cmd/operator/app"

func main() { app.Run() }
