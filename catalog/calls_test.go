package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDeclaredCalls(t *testing.T) {
	for text, want := range map[string]string{
		"orders":                                "shop/orders",
		" orders,ledger.finance ,\torders.shop": "finance/ledger,shop/orders",
		"":                                      `"": app-id is empty`,
		"orders,":                               `"": app-id is empty`,
		"orders.":                               `"orders.": namespace is empty`,
		"shop/orders":                           `"shop/orders": app-id "shop/orders"`,
		"a.b.c":                                 `"a.b.c": namespace "b.c"`,
		"Orders":                                `"Orders": app-id "Orders"`,
		"*":                                     `"*": app-id "*"`,
		strings.Repeat("a", MaxCallsText+1):     "more than",
	} {
		calls, err := ParseCalls("shop", text)
		got := string(calls)
		if err != nil {
			got = err.Error()
		}
		if (err == nil && got != want) || !strings.Contains(got, want) {
			t.Errorf("%.50q: %s, want %s", text, got, want)
		}
	}
	var many []string
	for i := range MaxCalls + 1 {
		many = append(many, fmt.Sprint("app-", i))
	}
	if _, err := ParseCalls("shop", strings.Join(many[1:], ",")); err != nil {
		t.Errorf("the most that there may be: %v", err)
	}
	if _, err := ParseCalls("shop", strings.Join(many, ",")); err == nil {
		t.Errorf("%d apps are taken", len(many))
	}
}

// FuzzParseCalls holds that what is read is read again, and that nothing else is.
func FuzzParseCalls(f *testing.F) {
	f.Add("orders, ledger.finance")
	f.Add("shop/orders,finance/ledger")
	f.Fuzz(func(t *testing.T, text string) {
		calls, err := ParseCalls("shop", text)
		if err == nil {
			if err := calls.Check(); err != nil {
				t.Fatalf("%q of %q: %v", calls, text, err)
			}
		}
		if other := Calls(text); other.Check() == nil {
			var back []string
			for app := range other.Apps() {
				if err := app.CheckHost(); err != nil {
					t.Fatal(err)
				}
				back = append(back, app.String())
			}
			if !slices.IsSorted(back) || strings.Join(back, ",") != text {
				t.Fatalf("%q is read as %q", text, back)
			}
		}
	})
}
