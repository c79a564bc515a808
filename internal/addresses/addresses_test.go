package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

func TestWhatAnAddressStandsFor(t *testing.T) {
	names := map[string][]netip.Addr{"two": {netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, "none": nil}
	for i := range 2 * Most {
		names["many"] = append(names["many"], netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
	}
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		ips, ok := names[host]
		if !ok {
			return nil, errors.New("no such host")
		}
		return ips, nil
	}
	for address, want := range map[string]string{
		"10.9.9.9:7400": "[10.9.9.9:7400] <nil>", "[::1]:7400": "[[::1]:7400] <nil>", "two:7400": "[10.0.0.2:7400 10.0.0.1:7400] <nil>", "none:7400": "[] <nil>",
		"gone:7400": "[] no such host", "two": "[] address two: missing port in address",
	} {
		all, err := Of(t.Context(), lookup, address)
		if got := fmt.Sprint(all, err); got != want {
			t.Errorf("%s stands for %s, want %s", address, got, want)
		}
	}
	if all, err := Of(t.Context(), lookup, "many:1"); err != nil || len(all) != Most {
		t.Errorf("a name of %d addresses stands for %d, %v", 2*Most, len(all), err)
	}
}
