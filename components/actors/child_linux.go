package actors

import "syscall"

// endsWithParent has a child end when the bridge does, however that comes about, and not get the
// Ctrl-C of a terminal.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
