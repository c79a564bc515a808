package main

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// patience is how long anything may take.
const patience = 30 * time.Second

// child is the service in its process.
type child struct {
	cmd     *exec.Cmd
	client  *rpc.Client
	profile string // where profiles are left, as a prefix; none if empty
}

func startChild(ctx context.Context, dir, profile string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve", dir, "-exports", strconv.Itoa(exports))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd, jsonrpc.NewClient(pipe{stdout, stdin}), profile}, nil
}

// stop ends the service by the end of its input.
func (c *child) stop() error { return errors.Join(c.client.Close(), c.cmd.Wait()) }

// ask calls a method of Control.
func ask[T any](c *child, method string, argument any) (answer T, err error) {
	if err = c.client.Call("Control."+method, argument, &answer); err != nil {
		err = fmt.Errorf("ask the service (%s): %w", method, err)
	}
	return answer, err
}

func (c *child) memory() (measure.Memory, error) { return ask[measure.Memory](c, "Memory", None{}) }

// phase has what comes profiled under a name.
func (c *child) phase(name string) error {
	if c.profile == "" {
		return nil
	}
	_, err := ask[None](c, "Profile", c.profile+name+".cpu.pprof")
	return err
}

// endProfiles ends the last profile, and profiles what is alive.
func (c *child) endProfiles() error {
	if c.profile == "" {
		return nil
	}
	_, err := ask[None](c, "Profile", "")
	_, heap := ask[None](c, "Heap", c.profile+"heap.pprof")
	return errors.Join(err, heap)
}

// profilePath begins the names of one column's profiles.
func profilePath(dir string, s size) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf("peers-%d+%d.", s.Peers, s.Others))
}

// meter tells how much CPU time two processes use, and how much of it is not what they
// use when nothing happens.
type meter struct {
	child      *child
	rest       float64 // of the service, CPU time for each time that passes
	began      time.Time
	used, self time.Duration
}

func (m *meter) start() (err error) {
	if m.used, err = ask[time.Duration](m.child, "CPU", None{}); err != nil {
		return err
	}
	m.self, err = cpu()
	m.began = time.Now()
	return err
}

// stop is for how long it was measured, what the service used beyond what it does at
// rest, and what the peers used, all of them and this program with them.
func (m *meter) stop() (took, service, peers time.Duration, err error) {
	used, err := ask[time.Duration](m.child, "CPU", None{})
	if err != nil {
		return 0, 0, 0, err
	}
	self, err := cpu()
	took = time.Since(m.began)
	service = used - m.used - time.Duration(m.rest*float64(took))
	return took, max(0, service), self - m.self, err
}
