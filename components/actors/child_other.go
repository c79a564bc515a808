//go:build !linux

package actors

import "syscall"

// endsWithParent has a child not get the Ctrl-C of a terminal.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
