package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/raftfsm/node"
)

// steered is what rounds are cut during, in turn: what takes longest, and what is rare, is
// asked for by name. All the rest is in progress beside it now and then.
var steered = []string{"append", "flush", "manifest", "merge", "receive", "alive-set", "rotation", "start", "receive", "log cut", "merge", "manifest", "vote"}

const powerRoundsEnv = "CARILLON_POWER_ROUNDS"

// The power of the disk is cut while a node does this or that, found by a look at what its
// goroutines do. After each cut `inspect data` finds no damage, all that was acknowledged is
// there, and what is there is what the first so many commands make, bodies included.
func TestPowerLoss_leavesAConsistentPrefix(t *testing.T) {
	if settings := os.Getenv(victimEnv); settings != "" {
		runVictim(settings)
		return
	}
	p := newPowerRounds(t)
	rounds := len(steered)
	if text := os.Getenv(powerRoundsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q: give the number of rounds", powerRoundsEnv, text)
		}
		rounds = n
	}
	for round := range rounds {
		p.round(round, steered[round%len(steered)])
		if t.Failed() {
			break
		}
	}
	p.finish()
	for _, name := range slices.Sorted(maps.Keys(p.cuts)) {
		t.Logf("%4d cuts during %s", p.cuts[name], name)
	}
	for _, operation := range steered {
		if rounds >= 5*len(steered) && p.cuts[operation] == 0 {
			t.Errorf("none of %d cuts fell into %q: this run proves nothing of it", rounds, operation)
		}
	}
	if rounds >= len(steered) && p.hits == 0 {
		t.Errorf("none of %d cuts fell into the operation that was waited for", rounds)
	}
	t.Logf("%d rounds, %d of them while the operation that was waited for was in progress; %d commands acknowledged by a node alone, %d by a cluster",
		rounds, p.hits, p.alone.low, p.cluster.low)
}

type powerRounds struct {
	t              *testing.T
	disk           *disk
	addrs          [3]string
	peers          [2]string
	alone, cluster history
	has            uint64 // entry up to which the follower has acknowledged the log
	cuts           map[string]int
	hits           int
}

// A history is how far the commands of one log have come.
type history struct {
	dir       string // on the disk
	low, high int    // acknowledged, proposed
}

func newPowerRounds(t *testing.T) *powerRounds {
	p := &powerRounds{t: t, disk: newDisk(t, 512<<20), addrs: [3]string(freeAddrs(t, 3)), cuts: map[string]int{}}
	p.peers = [2]string{t.TempDir(), t.TempDir()}
	p.alone.dir, p.cluster.dir = filepath.Join(p.disk.dir, "alone"), filepath.Join(p.disk.dir, "n3")
	return p
}

// round lets a victim cut its disk, and looks at what is left.
func (p *powerRounds) round(number int, during string) {
	h := &p.alone
	if during == "receive" {
		h = &p.cluster
	}
	p.run(h, during, uint64(number))
	p.disk.remount()
	p.inspect(h.dir)
}

// finish has both logs checked once more, without a cut.
func (p *powerRounds) finish() {
	if !p.t.Failed() {
		p.run(&p.alone, "", 0)
		p.run(&p.cluster, "", 0)
	}
}

func (p *powerRounds) inspect(dir string) {
	p.t.Helper()
	found, err := node.Inspect(dir)
	if err != nil {
		if _, missing := os.Stat(dir); missing != nil {
			return // cut off before it was there
		}
		p.t.Errorf("inspect: %v", err)
		return
	}
	for _, d := range found.Damages {
		p.t.Errorf("damaged: %v", &d)
	}
	if end := max(found.Log.Last, found.Schedule.Meta.Index); dir == p.cluster.dir && end < p.has {
		p.t.Errorf("the follower had acknowledged entry %d, its disk ends at %d", p.has, end)
	}
}

// run starts a victim and listens to it until it ends.
func (p *powerRounds) run(h *history, during string, seed uint64) {
	p.t.Helper()
	v := map[string]any{
		"Disk": p.disk.dir, "Peers": p.peers, "Third": p.cluster.dir, "Addrs": p.addrs,
		"During": during, "Low": h.low, "High": h.high, "Seed": seed,
	}
	if h == &p.alone {
		v["Alone"] = h.dir
	}
	settings, err := json.Marshal(v)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPowerLoss_leavesAConsistentPrefix$", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), victimEnv+"="+string(settings))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	stuck := time.AfterFunc(4*time.Minute, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	cut := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		if cut && what != "fail" && what != "propose" {
			continue
		}
		if problem := p.hear(h, during, what, rest); problem != nil {
			p.t.Errorf("during %s, seed %d: %v", during, seed, problem)
		}
		cut = cut || what == "cut"
	}
	if err := cmd.Wait(); (during != "") != cut || !cut && err != nil {
		p.t.Errorf("during %q, seed %d: the victim has ended without a cut: %v\n%s", during, seed, err, stderr.String())
	}
}

// hear takes down what a victim says.
func (p *powerRounds) hear(h *history, during, what, rest string) error {
	number, _ := strconv.Atoi(rest)
	switch what {
	case "state":
		if number < h.low || number > h.high {
			return fmt.Errorf("%d commands are there, of %d to %d", number, h.low, h.high)
		}
		h.low, h.high = number, number // nothing else is in the log
	case "propose":
		h.high = max(h.high, number+1)
	case "acked":
		h.low = max(h.low, number+1)
	case "has":
		p.has = uint64(number)
	case "cut":
		ops := strings.Split(rest, ",")
		for _, op := range ops {
			p.cuts[op]++
		}
		if slices.Contains(ops, during) {
			p.hits++
		}
	case "fail":
		return fmt.Errorf("%s", rest)
	}
	return nil
}
