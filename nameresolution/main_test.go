package nameresolution

import (
	"io"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	checkout = catalog.App{Namespace: "shop", ID: "checkout"}
	orders   = catalog.App{Namespace: "shop", ID: "orders"}
	ledger   = catalog.App{Namespace: "finance", ID: "ledger"}
	mail     = catalog.App{Namespace: "shop", ID: "mail"}
	quiet    = slog.New(slog.NewTextHandler(io.Discard, nil))
)
