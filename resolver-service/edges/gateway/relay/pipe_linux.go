package relay

import "golang.org/x/sys/unix"

const (
	// pipeSize is wanted of a pipe. It is not the system calls that make small ones
	// dear (256 KiB: half as much CPU again) but waking the receiver once for each.
	pipeSize = 1 << 20
	// minPipeSize is what a pipe must hold to be cheaper than copying. An ordinary
	// user gets less once the pipes of all his processes hold 64 MiB (pipe(7),
	// pipe-user-pages-soft).
	minPipeSize = 64 << 10
	// maxPipes bounds the pipes of one loop, so also what receivers that do not read
	// can make it hold. Without a pipe, bytes are copied. Two loops stay within what
	// an ordinary user may have.
	maxPipes = 32
	// maxSpare of them are kept while nobody needs them.
	maxSpare = 4
	// pipePause is how many times bytes are copied before a pipe is asked for again
	// when there was none to be had.
	pipePause = 1000
)

// pipe is a kernel buffer that bytes pass through on their way between two sockets.
type pipe struct {
	out, in int // descriptors
	size    int
	held    int // bytes in it
}

// pipes lends pipes to directions that pass on much at once.
type pipes struct {
	spare []*pipe
	open  int
	pause int
}

// get lends an empty pipe, or returns nil where there is none to be had.
func (ps *pipes) get() *pipe {
	if n := len(ps.spare); n > 0 {
		p := ps.spare[n-1]
		ps.spare = ps.spare[:n-1]
		return p
	}
	if ps.pause > 0 {
		ps.pause--
		return nil
	}
	if ps.open >= maxPipes {
		return nil
	}
	p := newPipe()
	if p == nil {
		ps.pause = pipePause
		return nil
	}
	ps.open++
	return p
}

func newPipe() *pipe {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	p := &pipe{out: fds[0], in: fds[1]}
	size, err := unix.FcntlInt(uintptr(p.in), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size, err = unix.FcntlInt(uintptr(p.in), unix.F_GETPIPE_SZ, 0)
	}
	if err != nil || size < minPipeSize {
		p.close()
		return nil
	}
	p.size = size
	return p
}

// put takes a pipe back. One that still holds something is of no use to anybody.
func (ps *pipes) put(p *pipe) {
	if p.held > 0 || len(ps.spare) >= maxSpare {
		p.close()
		ps.open--
		return
	}
	ps.spare = append(ps.spare, p)
}

func (ps *pipes) close() {
	for _, p := range ps.spare {
		p.close()
	}
	ps.spare = nil
}

func (p *pipe) close() {
	unix.Close(p.out)
	unix.Close(p.in)
}

// splice moves at most n bytes between a socket and a pipe and never waits.
func splice(from, to, n int) (int, error) {
	moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
	return int(moved), err
}
