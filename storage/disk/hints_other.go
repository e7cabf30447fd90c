//go:build !linux

package disk

import "os"

// StartWriteback is a hint that only Linux takes.
func StartWriteback(*os.File) {}

// ReadAhead is a hint that only Linux takes.
func ReadAhead(*os.File, int64, int64) {}
