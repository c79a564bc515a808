package component

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
)

// readyEvery is how often daprd is asked whether it is ready.
const readyEvery = 50 * time.Millisecond

// awaitReady returns once daprd is ready, which includes that its app listens, or ctx
// ends. daprd loads name resolution before any of its servers and long before it has
// found its app; whoever were sent there by then would be refused.
//
// A component is not told when daprd is ready, so this asks the health endpoint of
// daprd's HTTP API. Where that can't be had - on a Unix socket, on another address -
// the server for other sidecars, which starts after it, has to do.
func awaitReady(ctx context.Context, self nr.Instance) {
	if self.DaprHTTPPort == 0 {
		return
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}} // no proxy
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		// In this order: who sees the later server has missed the earlier one for good.
		serves := listens(ctx, self.Address, self.DaprInternalPort)
		ready, found := healthy(ctx, client, self)
		if ready || serves && !found {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// healthy asks daprd's HTTP API, and tells whether it is there at all. An answer other
// than an error of the server's says nothing against its health.
func healthy(ctx context.Context, client *http.Client, self nr.Instance) (ready, found bool) {
	for _, host := range []string{"127.0.0.1", "::1", self.Address} {
		url := "http://" + net.JoinHostPort(host, strconv.Itoa(self.DaprHTTPPort)) + "/v1.0/healthz"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			continue
		}
		res, err := client.Do(req)
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		return res.StatusCode < http.StatusInternalServerError, true
	}
	return false, false
}

// listens tells whether something accepts connections at an address.
func listens(ctx context.Context, host string, port int) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
