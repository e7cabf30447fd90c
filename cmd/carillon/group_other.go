//go:build !unix

package main

import "syscall"

// ownGroup keeps the signals of the terminal away from a child, where there are any.
func ownGroup() *syscall.SysProcAttr { return nil }
