package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/isthmus-mesh/isthmus/tests/bench/contender"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// The names that the proxies route by.
const (
	echoHost = "echo.bench.east.isthmus.internal" // TLS, echoes blocks of 1 KiB
	bulkHost = "bulk.bench.east.isthmus.internal" // sends as many bytes as it is told to
)

// ordinaryUser is a user that some proxies run as, and the next number another: what pipes a
// user may have is counted over all its processes.
const ordinaryUser = 65533

// besideIdle is how many idle connections are open beside what is measured, where a
// proxy runs as an ordinary user: they take the pipes of such a user if they can.
const besideIdle = 500

// candidate is one proxy, running, and what was measured of it.
type candidate struct {
	*contender.Running
	results
}

// stage has the apps behind the proxies, and starts the proxies.
type stage struct {
	dir, only string
	self      string // this program, where every user may execute it
	apps      apps
}

// proxies are all, ours first.
func (s *stage) proxies() (all []contender.Server, err error) {
	for _, own := range []struct {
		name, role string
		uid        uint32
	}{
		{"isthmus", "gateway", 0},
		{"isthmus, ordinary user", "gateway", ordinaryUser},
		{"Go io.Copy", "plain", 0},
		{"Go io.Copy, ordinary user", "plain", ordinaryUser + 1},
	} {
		if own.uid != 0 && os.Getuid() != 0 {
			measure.Progress("left out: %s (run as root to compare users)", own.name)
			continue
		}
		args, err := measure.Arguments(own.role, proxy{"127.0.0.1:PORT", s.apps})
		if err != nil {
			return nil, err
		}
		all = append(all, contender.Server{Name: own.name, Program: s.self, Args: args, UID: own.uid})
	}
	files := openFiles()
	fill := []string{"ECHO", s.apps.Echo, "BULK", s.apps.Bulk, "FILES", fmt.Sprint(files), "CLIENTS", fmt.Sprint(files/2 - 100)}
	return append(all,
		contender.Server{Name: "HAProxy", Program: "haproxy", Args: []string{"-db", "-q", "-f", "CONFIG"}, Config: haproxyConfig, Fill: fill},
		contender.Server{Name: "nginx stream", Program: "nginx", Args: []string{"-c", "CONFIG", "-e", "DIR/nginx.log"}, Config: nginxConfig, Fill: fill},
		contender.Server{Name: "sniproxy", Program: "sniproxy", Args: []string{"-f", "-c", "CONFIG"}, Config: sniproxyConfig, Fill: fill},
	), nil
}

// start starts every proxy that can be started here, ours first.
func (s *stage) start(ctx context.Context) (all []*candidate, err error) {
	proxies, err := s.proxies()
	if err != nil {
		return nil, err
	}
	running, err := contender.StartAll(ctx, s.dir, s.only, proxies, func(r *contender.Running) error {
		conn, err := net.Dial("tcp", r.Addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	for _, r := range running {
		all = append(all, &candidate{Running: r})
		if strings.Contains(r.Name, "ordinary user") {
			if _, failed := openIdle(r.Addr, besideIdle); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: open %d idle connections: %w", r.Name, besideIdle, failed))
			}
		}
	}
	return all, err
}

const haproxyConfig = `
global
  maxconn CLIENTS
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend gateway
  bind 127.0.0.1:PORT
  tcp-request inspect-delay 5s
  tcp-request content accept if { req_ssl_hello_type 1 }
  use_backend echo if { req_ssl_sni -i ` + echoHost + ` }
  use_backend bulk if { req_ssl_sni -i ` + bulkHost + ` }
backend echo
  server one ECHO
backend bulk
  server one BULK
`

const nginxConfig = `
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
worker_processes auto;
worker_rlimit_nofile FILES;
pid DIR/nginx.pid;
events { worker_connections FILES; }
stream {
  map $ssl_preread_server_name $app {
    ` + echoHost + ` ECHO;
    ` + bulkHost + ` BULK;
  }
  server {
    listen 127.0.0.1:PORT;
    ssl_preread on;
    proxy_pass $app;
    proxy_timeout 1h;
  }
}
`

const sniproxyConfig = `
listener 127.0.0.1:PORT {
  proto tls
  table apps
}
table apps {
  ` + echoHost + ` ECHO
  ` + bulkHost + ` BULK
}
`
