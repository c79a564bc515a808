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

func TestAnInstanceThatAnsweredMaySayNothingAfter(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		const limit = 200 * time.Millisecond
		gw, client, server := pass(t, Config{AnswerTimeout: limit}, with)
		if _, err := server.Write([]byte("x")); err != nil || !readExactly(client, make([]byte, 1)) {
			t.Skip("this machine was too slow to answer in time")
		}
		time.Sleep(3 * limit)
		io.WriteString(client, "question")
		readExactly(server, make([]byte, 8))
		io.WriteString(server, "answer")
		if got := make([]byte, 6); !readExactly(client, got) || string(got) != "answer" {
			t.Errorf("got %q\n%s", got, gw.log)
		}
	})
}
