package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// shared is what tests that run at the same time use in common, and get one at a time.
var shared struct {
	sync.Mutex
	programDir string // where buildCarillon has put it; empty: nowhere yet
}

func TestMain(m *testing.M) {
	m.Run()
	if shared.programDir != "" {
		_ = os.RemoveAll(shared.programDir) // it lies in the folder for what is temporary
	}
}

// needs skips the test when one of the programs is missing or the run is to be short, and fails
// it instead under CI, where nothing may be skipped.
func needs(t testing.TB, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("end-to-end tests take minutes: not with -short")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing(t, program+" is not installed: `make needs` installs it")
		}
	}
}

// needsRoot does the same for tests that mount file systems or start a Docker daemon.
func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "not run as root")
	}
}

func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// cache returns a folder outside the repository that outlives the run, for what is slow to fetch.
func cache(t testing.TB, name string) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "carillon-e2e", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lastPort is the port that freeAddrs gave last, so that none is given twice.
var lastPort atomic.Int32

// freeAddrs returns n addresses of 127.0.0.1 that nothing listens on. They lie below the range
// from which the kernel takes ports for outgoing connections, so that none is taken meanwhile.
func freeAddrs(t testing.TB, n int) []string {
	t.Helper()
	lastPort.CompareAndSwap(0, int32(15000+os.Getpid()*31%9000))
	var addrs []string
	for len(addrs) < n {
		port := lastPort.Add(1)
		if port > 32000 {
			t.Fatal("no free ports below 32000")
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		l.Close()
		addrs = append(addrs, addr)
	}
	return addrs
}

// needsAddr fails the test when something listens on an address that the test cannot choose.
func needsAddr(t testing.TB, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the test needs %s as the README prints it: %v; stop what listens there", addr, err)
	}
	l.Close()
}
