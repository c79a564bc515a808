package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// candidate is one proxy, running, and what was measured of it.
type candidate struct {
	name        string
	addr        string
	pid         int
	descriptors int // that an idle connection holds, to know how many fit
	results
}

// foreign is a proxy of somebody else.
type foreign struct {
	name, program, install string
	config                 string // PORT, ECHO, BULK, DIR and FILES are filled in
	args                   []string
}

var foreigners = []foreign{
	{"HAProxy", "haproxy", "apt-get install haproxy", haproxyConfig, []string{"-db", "-q", "-f", "CONFIG"}},
	{"nginx stream", "nginx", "apt-get install nginx libnginx-mod-stream", nginxConfig, []string{"-c", "CONFIG", "-e", "DIR/nginx.log"}},
	{"sniproxy", "sniproxy", "apt-get install sniproxy", sniproxyConfig, []string{"-f", "-c", "CONFIG"}},
}

const haproxyConfig = `
global
  maxconn CONNECTIONS
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

// candidates starts every proxy that can be started here, ours first.
func (s *stage) candidates(only string) ([]*candidate, error) {
	var all []*candidate
	wanted := func(name string) bool {
		return slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.Contains(name, part) })
	}
	for _, own := range []struct {
		name, role  string
		uid         int
		descriptors int
	}{
		{"isthmus", "gateway", 0, 2},
		{"isthmus, ordinary user", "gateway", ordinaryUser, 2},
		{"Go io.Copy", "plain", 0, 6},
		{"Go io.Copy, ordinary user", "plain", ordinaryUser + 1, 6},
	} {
		if own.uid != 0 && os.Getuid() != 0 {
			fmt.Fprintf(os.Stderr, "left out: %s (run as root to compare users)\n", own.name)
			continue
		}
		if !wanted(own.name) {
			continue
		}
		c, err := s.startOwn(own.name, own.role, own.uid, own.descriptors)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for _, f := range foreigners {
		if !wanted(f.name) {
			continue
		}
		c, err := s.startForeign(f)
		if err != nil {
			fmt.Fprintf(os.Stderr, "left out: %s: %v (%s)\n", f.name, err, f.install)
			continue
		}
		all = append(all, c)
	}
	return all, nil
}

// startOwn starts a proxy of this program. One that runs as an ordinary user is given
// idle connections, which take the pipes of such a user if they can.
func (s *stage) startOwn(name, role string, uid, descriptors int) (*candidate, error) {
	args := []string{"-role", role, "-echo", s.echo, "-bulk", s.bulk}
	if profile := os.Getenv("GATEWAYBENCH_PROFILE"); profile != "" {
		args = append(args, "-profile", profile)
	}
	addr, pid, err := s.startSelf(uid, args...)
	if err != nil {
		return nil, err
	}
	c := &candidate{name: name, addr: addr, pid: pid, descriptors: descriptors}
	if uid != 0 {
		if _, err := openIdle(addr, besideIdle); err != nil {
			return nil, fmt.Errorf("%s: open %d idle connections: %w", name, besideIdle, err)
		}
	}
	return c, nil
}

func (s *stage) startForeign(f foreign) (*candidate, error) {
	path, err := find(f.program)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	files := openFiles()
	config := filepath.Join(s.dir, f.program+".conf")
	fill := strings.NewReplacer("PORT", fmt.Sprint(port), "ECHO", s.echo, "BULK", s.bulk, "DIR", s.dir,
		"FILES", fmt.Sprint(files), "CONNECTIONS", fmt.Sprint(files/2-100), "CONFIG", config)
	if err := os.WriteFile(config, []byte(fill.Replace(f.config)), 0o644); err != nil {
		return nil, err
	}
	var args []string
	for _, a := range f.args {
		args = append(args, fill.Replace(a))
	}
	cmd := exec.Command(path, args...)
	if err := s.start(cmd, 0); err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	if err := awaitPort(addr); err != nil {
		return nil, err
	}
	return &candidate{name: f.name, addr: addr, pid: cmd.Process.Pid, descriptors: 2}, nil
}
