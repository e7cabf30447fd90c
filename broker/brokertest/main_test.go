package brokertest

import (
	"os"
	"testing"
)

// The disks of all clusters are in memory, unless TMPDIR says where they are to be.
func TestMain(m *testing.M) {
	if memory := Scratch(); memory != "" && os.Getenv("TMPDIR") == "" {
		os.Setenv("TMPDIR", memory)
	}
	m.Run()
}
