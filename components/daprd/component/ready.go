package component

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
)

// readyInterval is how often awaitReady asks daprd whether it is ready.
const readyInterval = 50 * time.Millisecond

// awaitReady returns when daprd is ready, which includes that its app listens, or when ctx ends.
// daprd loads name resolution before any of its servers, and long before it has found its app. Until
// then it refuses calls.
//
// daprd does not tell components when it is ready. So awaitReady asks the health endpoint of
// daprd's HTTP API. If that is not reached, for example on a Unix socket, it waits for the server
// for other sidecars instead, which starts later.
func awaitReady(ctx context.Context, self nr.Instance) {
	if self.DaprHTTPPort == 0 {
		return
	}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}} // no proxy
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		// The order matters: if the later server runs and the earlier one is not found, it never
		// will be.
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

// healthy asks daprd's HTTP API whether daprd is ready. found is false if nothing answers. Every
// answer except a server error counts as ready.
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

// listens reports whether a process accepts connections at an address.
func listens(ctx context.Context, host string, port int) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
