// Command sentry is Dapr's certificate authority, unchanged. It is built here so
// that one module pins the version of every Dapr binary.
package main

import "github.com/dapr/dapr/cmd/sentry/app"

func main() { app.Run() }
