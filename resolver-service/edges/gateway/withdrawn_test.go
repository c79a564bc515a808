package gateway

import (
	"io"
	"strings"
	"testing"
)

// Callers whose own service is away hear of no withdrawal, so the gateway ends what they have open.
func TestAWithdrawnExportEndsItsConnections(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		orders, ledger := tlsBackend(t, "orders"), tlsBackend(t, "ledger")
		gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {orders}, "ledger": {ledger}}), with)
		_, toOrders, err := call(t, gw.addr, ordersHost)
		if err != nil {
			t.Fatal(err)
		}
		_, toLedger, err := call(t, gw.addr, ledgerHost)
		if err != nil {
			t.Fatal(err)
		}
		gw.table.Store(exports(2, map[string][]string{"ledger": {ledger}, "idle": nil}))
		if _, err := toOrders.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection to an app that is exported no more: %v, want its end", err)
		}
		if _, err := io.WriteString(toLedger, "still\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := readLine(toLedger); err != nil || line != "still" {
			t.Errorf("a connection to an app that is exported on: %q, %v", line, err)
		}
	})
}
