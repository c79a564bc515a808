package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// size is how much a service holds.
type size struct{ Apps, Callees, Clusters int }

const perNamespace = 25 // apps

func (s size) app(i int) catalog.App {
	i = (i + s.Apps) % s.Apps
	return catalog.App{Namespace: fmt.Sprintf("team-%d", i/perNamespace), ID: fmt.Sprintf("app-%d", i)}
}

// selection lets an app call those after it, here or in some other cluster.
func (s size) selection(i, weight int) *catalog.AppEndpoints {
	o := &catalog.AppEndpoints{App: s.app(i)}
	for k := range s.Callees {
		o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: s.app(i + k + 1), Routes: []catalog.RouteSpec{
			{Cluster: catalog.LocalCluster, Weight: uint32(weight)}, {Cluster: fmt.Sprintf("c%d", (i+k)%s.Clusters), Priority: 1},
		}})
	}
	return o
}

// write writes all objects into the directory of a file store: selections, which change, each in a file.
func (s size) write(dir string) (err error) {
	for i := range s.Apps {
		if err := os.WriteFile(filepath.Join(dir, s.app(i).ID+".yaml"), api.EncodeYAML(s.selection(i, 1)), 0o600); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(dir, "all.yaml"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	put := func(o catalog.Object) {
		_, _ = out.Write(api.EncodeYAML(o))
		fmt.Fprintln(out, "---")
	}
	for i := range s.Clusters {
		put(&catalog.Cluster{Name: fmt.Sprintf("c%d", i), Gateways: []string{fmt.Sprintf("127.0.0.1:%d", 2+i)}, StaleAfter: 10 * time.Second})
	}
	for i := range s.Apps {
		for n := range 5 {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(n + 1)}), 50002)
			put(&catalog.AppInstance{Namespace: s.app(i).Namespace, Name: fmt.Sprintf("%s-%d", s.app(i).ID, n), App: s.app(i).ID, Address: at})
		}
	}
	return out.Flush()
}

// world is a service with a console, and an operator.
type world struct {
	size    size
	service *exec.Cmd
	console string // file with the next URL
	browser *consoletest.Browser
	conn    *grpc.ClientConn
}

func (w *world) pid() int { return w.service.Process.Pid }

// start starts the service and waits until it has all objects.
func start(ctx context.Context, dir string, s size) (*world, error) {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return nil, err
	}
	objects := filepath.Join(dir, "objects")
	if err := os.Mkdir(objects, 0o700); err != nil {
		return nil, err
	}
	if err := s.write(objects); err != nil {
		return nil, err
	}
	resolver, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	console, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("cluster: west\ndataDir: %s\nstore: {file: {path: %s}}\nidentity: {insecure: true}\nlog: {level: error}\nlisten: {resolver: '127.0.0.1:%d', console: '127.0.0.1:%d'}\n",
		filepath.Join(dir, "data"), objects, resolver, console)
	path := filepath.Join(dir, "isthmus.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	w := &world{size: s, service: exec.Command(binary, "serve", "-c", path), console: filepath.Join(dir, "data", "console-west.url")}
	w.service.Stderr = os.Stderr
	if err := w.service.Start(); err != nil {
		return nil, err
	}
	if w.conn, err = grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", resolver), grpc.WithTransportCredentials(insecure.NewCredentials())); err == nil {
		err = measure.Await(ctx, "the service", 50*time.Millisecond, func() error {
			answer, err := v1alpha1.NewStatusClient(w.conn).Status(ctx, &v1alpha1.StatusRequest{})
			if err == nil && int(answer.GetInstances()) < 5*s.Apps {
				err = fmt.Errorf("%d instances", answer.GetInstances())
			}
			return err
		})
	}
	if err == nil {
		w.browser, err = w.enter(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// enter signs a browser in.
func (w *world) enter(ctx context.Context) (*consoletest.Browser, error) {
	url, err := os.ReadFile(w.console)
	if err != nil {
		return nil, err
	}
	return consoletest.Enter(ctx, string(url))
}

func (w *world) close() error {
	_ = w.service.Process.Signal(os.Interrupt)
	err := w.service.Wait()
	if w.conn != nil {
		err = errors.Join(err, w.conn.Close())
	}
	if w.browser != nil {
		w.browser.Close()
	}
	return err
}
