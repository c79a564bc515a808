package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// result is what was measured over one kind of connections.
type result struct {
	name      string
	ready     time.Duration // from the start of the process until it has everything
	rss, peak uint64        // of the service, with all sidecars connected

	// One value for each change, from when it was sent until so many sidecars saw it.
	first, median, last []time.Duration

	serviceCPU, sidecarsCPU time.Duration // for each change
}

// once measures one service, which it starts and ends.
func once(ctx context.Context, p plan, o occasion) (r result, err error) {
	r.name = o.String()
	p.fleet.Popular = o.callers
	dir, err := os.MkdirTemp("", "isthmus-fanout-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := place(dir)
	progress("writing %d selections and %d instances", p.fleet.Apps, p.fleet.Apps*p.fleet.Instances)
	if err := at.fill(ctx, p.fleet); err != nil {
		return r, err
	}
	if o.mtls {
		apps := []catalog.App{identity.ServiceApp("", cluster)}
		for i := range p.streams/o.each + 1 {
			apps = append(apps, fleet.App(i))
		}
		if err := at.issue(apps); err != nil {
			return r, err
		}
	}
	s, err := start(ctx, dir, p.profile)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r.ready = s.ready
	return r, r.connected(ctx, p, o, at, s)
}

// connected measures with all sidecars connected.
func (r *result) connected(ctx context.Context, p plan, o occasion, at place, s *child) error {
	progress("%s: the service is ready after %s; connecting %d sidecars", r.name, s.ready.Round(time.Millisecond), p.streams)
	f, err := newFlipper(at, s.address)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.flip(ctx); err != nil {
		return err
	}
	all, err := connect(ctx, at, s.address, p.streams, o.each)
	defer all.close()
	if err != nil {
		return err
	}
	reached := all[:o.callers*o.each]
	if err := reached.await(ctx, f.address()); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // the snapshot of instances is written meanwhile
	progress("%s: measuring %d changes", r.name, p.changes)
	if _, err := s.stdin.Write([]byte{1}); err != nil { // the service may begin to profile
		return err
	}
	before, own := cpu(s.pid()), cpu(os.Getpid())
	for range p.changes {
		if err := r.change(ctx, f, reached); err != nil {
			return err
		}
	}
	r.serviceCPU = (cpu(s.pid()) - before) / time.Duration(p.changes)
	r.sidecarsCPU = (cpu(os.Getpid()) - own) / time.Duration(p.changes)
	r.rss, r.peak = measure.Resident(s.pid())
	return nil
}

// pause is between two changes.
const pause = 40 * time.Millisecond

func (r *result) change(ctx context.Context, f *flipper, reached sidecars) error {
	began := time.Now()
	if err := f.flip(ctx); err != nil {
		return err
	}
	seen, err := reached.watch(ctx, f.address(), began)
	if err != nil {
		return err
	}
	r.first = append(r.first, measure.Quantile(seen, 0))
	r.median = append(r.median, measure.Median(seen))
	r.last = append(r.last, measure.Quantile(seen, 1))
	time.Sleep(pause)
	return nil
}

// child is the service in its process.
type child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	address string
	ready   time.Duration
}

func start(ctx context.Context, dir, profile string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve", dir, "-profile", profile)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &child{cmd: cmd, stdin: stdin}
	address, err := bufio.NewReader(stdout).ReadString('\n')
	s.ready = time.Since(began)
	s.address = strings.TrimSpace(address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the service has not started: %w", err), s.stop())
	}
	return s, nil
}

func (s *child) pid() int { return s.cmd.Process.Pid }

func (s *child) stop() error { return errors.Join(s.stdin.Close(), s.cmd.Wait()) }

// cpu is the CPU time that a process has used, from /proc/PID/stat (proc(5)).
func cpu(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const ticks = 100 // per second; USER_HZ of every Linux that Go runs on
	return time.Duration(user+system) * time.Second / ticks
}
