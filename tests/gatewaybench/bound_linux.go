package main

import "syscall"

// bound ends a program with this one.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
