package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Everything that a network is made of begins with this name, so that what a run that was killed
// has left behind is known and removed.
const networkPrefix = "carillon-e2e-"

// A network is namespaces, one for each host, on a bridge that has a namespace of its own:
//
//	this process -- root namespace: carillon-e2e0 198.18.77.254
//	                                     |
//	namespace carillon-e2e-hub:      bridge -- n1, n2, ... one port for each host
//	                                             |
//	namespaces carillon-e2e-n1, ...:        eth0 198.18.77.1, ...
//
// The addresses are of a block that is set aside for tests of networks (RFC 2544).
type network struct {
	hosts map[string]*networkHost
	netem bool // whether the kernel can delay packets
}

type networkHost struct {
	name, ip, namespace string
}

const (
	networkHub   = networkPrefix + "hub"
	networkRoot  = "carillon-e2e0" // this process's own port; 15 characters at most
	networkBlock = "198.18.77."
)

// lacksNetwork returns why no network can be made here, or nothing.
func lacksNetwork() string {
	if os.Geteuid() != 0 {
		return "not run as root"
	}
	for _, program := range []string{"ip", "tc", "iptables", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	if out, err := exec.Command("ip", "netns", "add", networkPrefix+"trial").CombinedOutput(); err != nil {
		return "no network namespaces: " + strings.TrimSpace(string(out))
	}
	_ = quietly("ip", "netns", "del", networkPrefix+"trial") // what stays is removed with the rest
	return ""
}

// alone holds the machine-wide things that such tests make for this process alone, and removes what a
// run before has left behind. It waits while another process has them.
func alone(t testing.TB) {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), networkPrefix+"lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		t.Logf("waits for another run of this test")
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { lock.Close() })
	removeNetwork(t)
	t.Cleanup(func() { removeNetwork(t) })
}

// removeNetwork removes every namespace of such tests, and this process's port.
func removeNetwork(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	_ = quietly("ip", "link", "del", networkRoot) // mostly it is not there
	left, err := filepath.Glob("/run/netns/" + networkPrefix + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range left {
		if err := quietly("ip", "netns", "del", filepath.Base(namespace)); err != nil {
			t.Errorf("%v", err)
		}
	}
}

func newNetwork(t testing.TB, hosts ...string) *network {
	t.Helper()
	n := &network{hosts: map[string]*networkHost{}}
	do := func(argv ...string) {
		t.Helper()
		if err := quietly(argv...); err != nil {
			t.Fatal(err)
		}
	}
	do("ip", "netns", "add", networkHub)
	do("ip", "-n", networkHub, "link", "add", "bridge", "type", "bridge")
	do("ip", "-n", networkHub, "link", "set", "bridge", "up")
	port := func(name string) {
		do("ip", "-n", networkHub, "link", "set", name, "master", "bridge")
		do("ip", "-n", networkHub, "link", "set", name, "up")
	}
	do("ip", "link", "add", networkRoot, "type", "veth", "peer", "name", "test", "netns", networkHub)
	port("test")
	do("ip", "addr", "add", networkBlock+"254/24", "dev", networkRoot)
	do("ip", "link", "set", networkRoot, "up")
	for i, name := range hosts {
		h := &networkHost{name: name, ip: fmt.Sprint(networkBlock, i+1), namespace: networkPrefix + name}
		n.hosts[name] = h
		do("ip", "netns", "add", h.namespace)
		do("ip", "-n", h.namespace, "link", "add", "eth0", "type", "veth", "peer", "name", name, "netns", networkHub)
		port(name)
		do("ip", "-n", h.namespace, "addr", "add", h.ip+"/24", "dev", "eth0")
		do("ip", "-n", h.namespace, "link", "set", "eth0", "up")
		do("ip", "-n", h.namespace, "link", "set", "lo", "up")
	}
	n.netem = quietly("tc", "-n", networkHub, "qdisc", "add", "dev", "bridge", "root", "netem") == nil
	if n.netem {
		do("tc", "-n", networkHub, "qdisc", "del", "dev", "bridge", "root")
	}
	return n
}

// inside is what runs a command on the host.
func (h *networkHost) inside() []string {
	return []string{"nsenter", "--net=/run/netns/" + h.namespace}
}

// pull takes the host's plug out of the bridge, or puts it back.
func (h *networkHost) pull(out bool) error {
	return quietly("ip", "-n", networkHub, "link", "set", h.name, map[bool]string{true: "down", false: "up"}[out])
}

// deafen has the host lose what comes from another one, or hear it again.
func (h *networkHost) deafen(from *networkHost, deaf bool) error {
	return h.filter(deaf, "-s", from.ip, "-j", "DROP")
}

// lossy has the host lose every seventh packet that comes, or none.
func (h *networkHost) lossy(on bool) error {
	return h.filter(on, "-m", "statistic", "--mode", "random", "--probability", "0.15", "-j", "DROP")
}

func (h *networkHost) filter(on bool, rule ...string) error {
	verb := map[bool]string{true: "-A", false: "-D"}[on]
	argv := append(h.inside(), "iptables", "-w", verb, "INPUT")
	return quietly(append(argv, rule...)...)
}

// slow makes the host's link slow both ways, or quick again: 100 ms and some jitter each way, or, in
// a kernel without netem, 1 Mbit/s with queues of up to 300 ms.
func (n *network) slow(h *networkHost, on bool) error {
	shape := []string{"netem", "delay", "100ms", "30ms"}
	if !n.netem {
		shape = []string{"tbf", "rate", "1mbit", "burst", "10kb", "latency", "300ms"}
	}
	for _, at := range [][2]string{{h.namespace, "eth0"}, {networkHub, h.name}} {
		argv := []string{"tc", "-n", at[0], "qdisc", map[bool]string{true: "add", false: "del"}[on], "dev", at[1], "root"}
		if on {
			argv = append(argv, shape...)
		}
		if err := quietly(argv...); err != nil {
			return err
		}
	}
	return nil
}

// quietly runs a command that says nothing when it succeeds, also after the test's end.
func quietly(argv ...string) error {
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
