// Package isthmusdaprd adds Isthmus to a daprd that you build: the name-resolution component
// "isthmus", the dialer that makes daprd's calls, and the guard. A Configuration without that
// component works as in Dapr's own daprd.
//
// Its program calls [Register], then Run of github.com/dapr/dapr/cmd/daprd/app. The page "Your own
// daprd" of the documentation has such programs.
package isthmusdaprd

import (
	"errors"
	"os"
	"sync/atomic"

	"github.com/dapr/dapr/pkg/components/middleware/http"
	"github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/components/daprd/component"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/configstore/open"
)

// Options say what of Isthmus a daprd has. None are needed.
type Options struct {
	// Stores are kinds of config store with a server, for sidecars that have no resolver service and
	// read a store themselves. The kinds embedded and file are always there.
	Stores []open.Kind
	// NoDialer leaves calls to daprd. A lookup then answers one address, and other clusters' gateways
	// need DNS.
	NoDialer bool
	// NoGuard lets every caller in, and leaves the headers that name callers as they come.
	NoGuard bool
}

var registered atomic.Bool

// Register adds Isthmus to Dapr's registries, and to the gRPC servers and connections of the process.
// Call it once, before daprd runs and before anything dials; a second call is an error. Call stop
// after daprd has ended.
//
// It reads daprd's flags in [os.Args]. Where they name an app's port it puts one before them, which
// has daprd serve on for two seconds after SIGTERM: --dapr-block-shutdown-duration. Your own value of
// that flag wins.
//
// The dialer and the guard need hooks of gRPC. If the version of gRPC lacks them, daprd runs without
// that part. Its log says what is lost, and "isthmus sidecars" names the part.
func Register(o Options) (stop func(), err error) {
	if registered.Swap(true) {
		return nil, errors.New("isthmusdaprd: Register was called before; call it once in a process")
	}
	log := component.Logger(logger.NewLogger("isthmus"))
	dialer := dial.New(log, utils.SpanFromContext, component.Answer)
	dialer.Header = component.Header
	isthmus := component.New(log, dialer)
	if o.NoDialer {
		isthmus.WithoutDialer(nil)
	} else if err := dialer.Register(); err != nil {
		isthmus.WithoutDialer(err)
	}
	if o.NoGuard {
		isthmus.WithoutGuard(nil)
	} else if err := isthmus.RegisterInterceptors(); err != nil {
		isthmus.WithoutGuard(err)
	}
	isthmus.Stores = o.Stores
	isthmus.Self = component.SelfFromArgs(os.Args)
	isthmus.App = component.AppFromArgs(os.Args)
	isthmus.PlainText = component.PlainTextFromArgs(os.Args)
	isthmus.Register(nameresolution.DefaultRegistry)
	isthmus.RegisterGuard(http.DefaultRegistry)
	isthmus.RegisterCaller(http.DefaultRegistry)
	isthmus.ExportMetrics()
	os.Args = component.Arguments(os.Args)
	return isthmus.DrainOnSignals(), nil
}
