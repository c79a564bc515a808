package xds

import (
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A service that stops tells its clients so, and waits for none of them for long.
func TestAServerThatStopsEndsItsStreams(t *testing.T) {
	both(t, func(t *testing.T, delta bool) {
		x := start(t, Settings{}, selects("checkout", endpoint("orders", local)))
		x.runs(shop("orders"), "10.0.0.1:50002")
		var all []*adsClient
		for range 20 {
			c := x.connect(t, shop("checkout"), delta)
			c.follow(endpoints, "orders.shop")
			c.next()
			all = append(all, c)
		}
		silent, err := net.Dial("tcp", x.address) // it finishes no handshake
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		began := time.Now()
		x.stop()
		if took := time.Since(began); took > patience/2 {
			t.Errorf("the stop took %s", took)
		}
		for _, c := range all {
			for range c.answers {
			}
			if status.Code(c.ended) != codes.Unavailable || !strings.Contains(c.ended.Error(), "the service is stopping; reconnect") {
				t.Errorf("the stream ended with %v", c.ended)
			}
		}
	})
}
