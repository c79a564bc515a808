package consulapi

import (
	"cmp"
	"net"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/bounded"
)

const (
	tooManyText = "Your IP is issuing too many concurrent connections, please rate limit your calls\n"
	tooMany     = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: 81\r\nConnection: close\r\n\r\n" + tooManyText
)

// refusalTimeout is how long a client may take to be told that it is refused.
const refusalTimeout = time.Second

// bound limits the connections to the API. A client beyond them is told so, as by a Consul agent.
func (s *Server) bound(l net.Listener) net.Listener {
	return bounded.New(l, bounded.Bounds{
		Max:       cmp.Or(s.cfg.MaxConnections, DefaultMaxConnections),
		PerClient: cmp.Or(s.cfg.MaxConnectionsPerClient, DefaultMaxConnectionsPerClient),
		Count:     func(bounded.Reason) { s.metrics.refused.Inc() },
		Refuse: func(c net.Conn) {
			// The answer fits into the socket's buffer, so nobody waits for the client.
			_ = c.SetDeadline(time.Now().Add(refusalTimeout))
			_, _ = c.Write([]byte(tooMany))
		},
	})
}
