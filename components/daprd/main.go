// Command daprd is Dapr's sidecar with the name-resolution component "isthmus". It takes daprd's
// flags and does everything that daprd does. A Configuration without that component works as in
// daprd.
//
// Build it with the tag stablecomponents or allcomponents, as daprd itself.
package main

import (
	"os"
	_ "time/tzdata" // for images, which have no files with time zones

	"github.com/dapr/dapr/cmd/daprd/app"
	"github.com/dapr/dapr/pkg/components/middleware/http"
	"github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/components/daprd/component"
	"github.com/isthmus-mesh/isthmus/components/dial"
)

func main() {
	dapr := logger.NewLogger("isthmus")
	log := component.Logger(dapr)
	dialer := dial.New(log, utils.SpanFromContext, component.Answer)
	dialer.Header = component.Header
	isthmus := component.New(log, dialer)
	if err := dialer.Register(isthmus.DialOptions()...); err != nil {
		dapr.Fatal(err)
	}
	isthmus.SetSelf(component.SelfFromArgs(os.Args))
	isthmus.SetApp(component.AppFromArgs(os.Args))
	isthmus.SetPlainText(component.PlainTextFromArgs(os.Args))
	isthmus.Register(nameresolution.DefaultRegistry)
	isthmus.RegisterGuard(http.DefaultRegistry)
	isthmus.RegisterCaller(http.DefaultRegistry)
	if err := isthmus.RegisterServer(); err != nil {
		dapr.Fatal(err)
	}
	isthmus.ExportMetrics()
	stop := isthmus.DrainOnSignals()
	defer stop()

	os.Args = component.Arguments(os.Args)
	app.Run()
}
