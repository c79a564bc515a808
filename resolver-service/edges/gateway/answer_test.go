package gateway

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

func TestAnInstanceThatDoesNotAnswerIsGivenUp(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		closed := make(chan struct{}, 1)
		silent := backend(t, func(c *net.TCPConn) {
			io.Copy(io.Discard, c)
			closed <- struct{}{}
		})
		gw := serve(t, Config{AnswerTimeout: 300 * time.Millisecond}, exports(1, map[string][]string{"orders": {silent}}), with)
		c := dialTCP(t, gw.addr)
		c.Write(hello(ordersHost))
		if got, _ := io.ReadAll(c); !bytes.Equal(got, alertInternalError) {
			t.Errorf("told % x, want % x", got, alertInternalError)
		}
		<-closed
		eventually(t, "it is over", func() bool { return gw.metric("isthmus_gateway_connections_open") == 0 })
		if gw.refused(noAnswer) != 1 || !strings.Contains(gw.log.String(), silent) {
			t.Errorf("%d counted; logged:\n%s", gw.refused(noAnswer), gw.log)
		}
	})
}
