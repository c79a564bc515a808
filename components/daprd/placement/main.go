// Command placement is Dapr's placement service, unchanged: it tells sidecars who hosts which
// actor. It is built here so that one module pins the version of every Dapr binary.
package main

import "github.com/dapr/dapr/cmd/placement/app"

func main() { app.Run() }
