//go:build unix

package main

import "syscall"

// ownGroup keeps the signals of the terminal away from a child.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
