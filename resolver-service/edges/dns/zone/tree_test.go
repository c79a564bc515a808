package zone

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// TestWhatIsBelowANameThatIsMissingIsMissing has names of up to five labels, of every kind
// below the zone: where one is there, so is each that it is below (RFC 8020), whoever asks
// and for whatever type.
func TestWhatIsBelowANameThatIsMissingIsMissing(t *testing.T) {
	w := shop(t)
	labels := []string{"_dapr", "_tcp", "orders", "shop", "west", "east", "mars", "3", "10-0-0-1"}
	there := func(who, name, typ string) bool {
		a := asking{name: name, typ: typ}
		if strings.Contains(who, "/") {
			a.as = who
		}
		got := w.ask(a)
		if got.Rcode != dns.RcodeSuccess && got.Rcode != dns.RcodeNameError {
			t.Fatalf("%s asks %s %s: got %v", who, name, typ, got)
		}
		return got.Rcode == dns.RcodeSuccess
	}
	var walk func(who, name string, depth int)
	walk = func(who, name string, depth int) {
		parent := there(who, name, "A")
		for _, typ := range []string{"SRV", "TXT"} {
			if there(who, name, typ) != parent {
				t.Errorf("%s: %s is there for %s or for A, and not for both", who, name, typ)
			}
		}
		if depth == 0 {
			return
		}
		for _, label := range labels {
			child := label + "." + name
			if !parent && there(who, child, "A") {
				t.Errorf("%s: %s is there, and it is below %s, which is not", who, child, name)
			}
			if parent || depth == 1 {
				walk(who, child, depth-1)
			}
		}
	}
	for _, who := range []string{"nobody", "shop/checkout", "shop/cart"} {
		walk(who, "isthmus.internal.", 5)
	}
}
