package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonmq/carillon/cmd/carillon/e2e/torture"
)

var (
	tortureFaults  = flag.Int("faults", 4, "how many faults TestTorture carries out, in all")
	tortureSeed    = flag.Uint64("seed", 21, "what TestTorture draws them from; 0: another one each time")
	tortureBrokers = flag.String("brokers", "1", "of how many brokers Kafka is: one run for each, as in 1,3")
)

// TestTorture carries out faults drawn from a seed while messages come and go, and holds every record
// that was produced against the one fate it must have:
//
//	make torture FAULTS=200 [SEED=7] [BROKERS=1,3]
func TestTorture(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64N(1_000_000) + 1
	}
	sizes := strings.Split(*tortureBrokers, ",")
	if *tortureFaults < len(sizes) {
		t.Fatalf("-faults %d: at least one for each of -brokers %s", *tortureFaults, *tortureBrokers)
	}
	for i, text := range sizes {
		brokers, err := strconv.Atoi(text)
		if err != nil || brokers < 1 {
			t.Fatalf("-brokers %q: numbers of brokers with commas between them, as in 1,3", *tortureBrokers)
		}
		t.Run(text+" Kafka brokers", func(t *testing.T) {
			faults := *tortureFaults*(i+1)/len(sizes) - *tortureFaults*i/len(sizes)
			runTorture(t, torture.Setting{Seed: seed, Faults: faults, Nodes: 3, Brokers: brokers})
		})
	}
}

func runTorture(t *testing.T, s torture.Setting) {
	needs(t, "java", "mvn")
	alone(t)
	dir := newTortureFolder(t)
	t.Logf("seed %d, %d faults, Kafka of %d, data in %s", s.Seed, s.Faults, s.Brokers, dir)
	o := newOrdeal(&kept{TB: t, dir: dir}, &s)
	again := fmt.Sprintf("go test -run TestTorture -v -timeout 2h ./cmd/carillon/e2e -seed %d -faults %d -brokers %d", s.Seed, s.Faults, s.Brokers)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: %s\nfaults as they were: %s\ndata and logs: %s (disks of nodes: mount -o loop,ro)", again, o.log.Name(), dir)
		}
	})
	traffic := o.startTraffic(s)
	defer traffic.stop()
	stop := o.supervise()
	defer stop() // before the processes are ended
	o.isCalm("before the first fault")
	run := torture.Run{Kinds: s.Kinds(), From: time.Now()}
	o.carryOutAll(torture.Draw(s))
	traffic.stop()
	far := o.settle(traffic)
	stop()

	now := time.Now()
	sums := o.ledger.Close(now)
	run.Strikes, run.Elections = o.strikes, o.nodes.elections()
	t.Logf("seed %d, Kafka of %d: %d faults in %v\n%s", s.Seed, s.Brokers, len(o.strikes),
		now.Sub(o.began).Round(time.Second), o.ledger.Report(sums, run))
	if sums.Later != far {
		t.Errorf("%d records wait for a time to come, %d were produced", sums.Later, far)
	}
	if len(o.strikes) != s.Faults || sums.Delivered == 0 {
		t.Errorf("%d of %d faults were carried out, %d records delivered: this run proves nothing", len(o.strikes), s.Faults, sums.Delivered)
	}
	problems := append(sums.Problems, o.ledger.Unexplained(run)...)
	for _, problem := range problems[:min(10, len(problems))] {
		t.Error(problem)
	}
	if n := len(problems); n > 10 {
		t.Errorf("and %d more", n-10)
	}
}

// newTortureFolder returns a folder that stays when the test fails, and unmounts what an earlier run
// that was killed has left mounted.
func newTortureFolder(t *testing.T) string {
	t.Helper()
	const prefix = "carillon-torture-"
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, filepath.Join(os.TempDir(), prefix)) {
			if err := quietly("umount", "-l", at); err != nil {
				t.Error(err)
			}
		}
	}
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A kept is a test whose temporary folders are in a folder of its choice.
type kept struct {
	testing.TB
	dir     string
	folders atomic.Int32
}

// TempDir returns a new folder, which the test does not remove.
func (k *kept) TempDir() string {
	dir := filepath.Join(k.dir, fmt.Sprintf("%03d", k.folders.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		k.Fatal(err)
	}
	return dir
}

// Failed keeps processes from showing the ends of their logs, which are hundreds and stay.
func (k *kept) Failed() bool { return false }

// An ordeal is Carillon and Kafka with all that can be done to them.
type ordeal struct {
	t       *kept
	kafka   *kafkaCluster
	nodes   *carillonCluster
	network *network // nil: there is none
	ledger  *torture.Ledger
	victims map[string]*victim
	began   time.Time

	mu      sync.Mutex
	log     *os.File
	strikes []torture.Strike
	episode int
}

// newOrdeal starts all of it, with what the machine can give, and says in the setting what that is.
func newOrdeal(t *kept, s *torture.Setting) *ordeal {
	t.Helper()
	o := &ordeal{t: t, ledger: torture.NewLedger(), victims: map[string]*victim{}, began: time.Now()}
	log, err := os.Create(filepath.Join(t.dir, "faults.log"))
	if err != nil {
		t.Fatal(err)
	}
	o.log = log
	t.Cleanup(func() { log.Close() })

	var nodes, brokers []string
	for i := range s.Nodes {
		nodes = append(nodes, "n"+strconv.Itoa(i+1))
	}
	for i := range s.Brokers {
		brokers = append(brokers, "k"+strconv.Itoa(i+1))
	}
	s.Network, s.Disks = o.can("network faults", lacksNetwork()), o.can("full disks", lacksDisks())
	if s.Network {
		o.network = newNetwork(t, append(nodes, brokers...)...)
		if !o.network.netem {
			t.Logf("slow links are narrow ones: this kernel has no netem")
		}
	}
	o.startKafka(brokers)
	o.startNodes(nodes, s.Disks)
	return o
}

// can says what is skipped, and why, unless nothing may be.
func (o *ordeal) can(what, lacks string) bool {
	o.t.Helper()
	if lacks != "" && os.Getenv("CI") == "true" {
		o.t.Fatal(lacks)
	}
	if lacks != "" {
		o.t.Logf("skips %s: %s", what, lacks)
	}
	return lacks == ""
}

func (o *ordeal) startKafka(names []string) {
	o.t.Helper()
	var brokers []*kafkaBroker
	for _, name := range names {
		b := &kafkaBroker{}
		if o.network == nil {
			addrs := freeAddrs(o.t, 2)
			b.Addr, b.Controller = addrs[0], addrs[1]
		} else {
			h := o.network.hosts[name]
			b.Addr, b.Controller, b.inside = h.ip+":9092", h.ip+":9093", h.inside()
		}
		brokers = append(brokers, b)
		o.victims[name] = &victim{name: name, broker: b}
	}
	o.kafka = newKafka(o.t, brokers...)
	o.kafka.startWithin(5 * patience)
	o.kafka.create(6, tortureTopics()...)
}

func (o *ordeal) startNodes(names []string, disks bool) {
	o.t.Helper()
	var data []string
	for _, name := range names {
		v := &victim{name: name}
		o.victims[name] = v
		if !disks {
			data = append(data, o.t.TempDir())
			continue
		}
		v.disk = newDisk(o.t, 1<<30)
		data = append(data, v.disk.subdirs("data")...)
	}
	o.nodes = newCarillon(o.t, o.kafka.addrs(), data...)
	for i, n := range o.nodes.nodes {
		o.victims[names[i]].node = n
		if o.network != nil {
			h := o.network.hosts[n.ID]
			n.Raft, n.API, n.inside, n.OffLoopback = h.ip+":7301", h.ip+":7401", h.inside(), true
		}
	}
	o.nodes.configure()
	o.nodes.launch()
	await(o.t, 5*patience, "all nodes are ready", func() bool {
		return !slices.ContainsFunc(o.nodes.nodes, func(n *carillonNode) bool { return !n.ready() })
	})
	o.nodes.born = o.nodes.term()
}
