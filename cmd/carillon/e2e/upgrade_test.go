package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

// Commits of programs that are upgraded here.
const (
	lastOfLevelOne = "309c7bc" // the last that knows nothing of feature levels
	lastBeforeIDs  = "9f6fe99" // the last that has no code for level three
)

// buildOld builds the program of a commit from the repository's history and returns its path.
func buildOld(t testing.TB, commit string) string {
	t.Helper()
	needs(t, "git", "tar")
	dir := cache(t, "carillon-"+commit)
	binary := filepath.Join(dir, "carillon")
	if _, err := os.Stat(binary); err == nil {
		return binary
	}
	root := strings.TrimSpace(run(t, ".", nil, "go", "list", "-m", "-f", "{{.Dir}}"))
	// Under sudo the repository belongs to somebody else.
	git := []string{"git", "-c", "safe.directory=" + root, "-C", root}
	if err := command(t, ".", nil, append(git, "cat-file", "-e", commit+"^{commit}")...).Run(); err != nil {
		missing(t, "the history does not go back to "+commit+", whose program is upgraded here: `git fetch --unshallow`")
	}
	source, archive := t.TempDir(), filepath.Join(t.TempDir(), "source.tar")
	run(t, ".", nil, append(git, "archive", "-o", archive, commit)...)
	run(t, ".", nil, "tar", "-xf", archive, "-C", source)
	run(t, source, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", binary+".new", "./cmd/carillon")
	if err := os.Rename(binary+".new", binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// An upgrade is a cluster under load whose nodes get other programs.
type upgrade struct {
	*carillonCluster
	kafka    *kafkaCluster
	ledger   *ledger
	producer *kgo.Client // of records besides the load
	sent     int
	restarts int
}

// newUpgrade starts real Kafka and three nodes of the old program.
func newUpgrade(t *testing.T, old string) *upgrade {
	t.Helper()
	k := startKafka(t, freeAddrs(t, 1)...)
	k.create(6, delayTopic, targetTopic)
	c := newCarillon(t, k.addrs(), dirs(t, 3)...)
	for _, n := range c.nodes {
		n.binary = old
	}
	c.start()
	c.born = c.term()
	u := &upgrade{carillonCluster: c, kafka: k, ledger: newLedger()}
	u.ledger.consume(k, targetTopic)
	return u
}

// install restarts the node with another program while messages come and go.
func (u *upgrade) install(n *carillonNode, binary string) {
	u.t.Helper()
	const messages, rate = 1500, 1000
	loaded := u.ledger.load(u.kafka, u.sent, messages, rate, 3*time.Second)
	u.sent += messages
	u.restarts++
	n.process.stop()
	n.binary = binary
	u.start()
	<-loaded
}

// leadBy makes a node lead that runs the program.
func (u *upgrade) leadBy(binary string) {
	u.t.Helper()
	for {
		leader := u.leader()
		if leader.binary == binary {
			return
		}
		u.install(leader, leader.binary)
	}
}

// install all restarts them one after the other, and has both programs lead in between.
func (u *upgrade) installAll(from, to string) {
	u.t.Helper()
	for i, n := range u.nodes {
		u.install(n, to)
		if i == 0 {
			u.leadBy(from)
		}
		if i == 1 {
			u.leadBy(to)
		}
	}
}

// raise runs `carillon cluster raise` and returns what it printed, and whether it succeeded.
func (u *upgrade) raise(through *carillonNode) (said string, ok bool) {
	out, err := command(u.t, ".", nil, u.binary, "cluster", "raise", "--api", through.API).CombinedOutput()
	return string(out), err == nil
}

// level returns the feature level in force as the node tells it, 0 for one that does not.
func (u *upgrade) level(n *carillonNode) uint32 {
	u.t.Helper()
	body, err := n.get("/v1/status")
	var s struct {
		Level struct {
			InForce uint32 `json:"in_force"`
		} `json:"feature_level"`
	}
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		u.t.Fatal(err)
	}
	return s.Level.InForce
}

// follower returns a node that does not lead.
func (u *upgrade) follower() *carillonNode {
	leader := u.leader()
	for _, n := range u.nodes {
		if n != leader {
			return n
		}
	}
	return nil
}

// refuses stops the node, starts it with the program, and expects that to end with these words
// among its last.
func (u *upgrade) refuses(n *carillonNode, binary, words string) {
	u.t.Helper()
	n.process.stop()
	n.process = start(u.t, "old carillon "+n.ID, nil, binary, "serve", "--config", n.config)
	await(u.t, patience, "the old program ends on "+n.ID, func() bool { return !n.process.running() })
	if log := string(tail(n.process.log, 64<<10)); n.process.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(log, words) {
		u.t.Errorf("the old program ended with %v, without %q:\n%s", n.process.cmd.ProcessState, words, tail(n.process.log, 2<<10))
	}
}

// The program before feature levels and this one run in one cluster, either leading; each is put in
// the place of the other under load, until the level is raised.
func TestUpgrade_canBeTakenBackUntilTheRaise(t *testing.T) {
	t.Parallel()
	needs(t, "java", "mvn")
	old := buildOld(t, lastOfLevelOne)
	u := newUpgrade(t, old)
	k, c := u.kafka, u.carillonCluster
	k.create(1, "large.delay", "large")

	u.install(c.nodes[0], c.binary)
	u.leadBy(old)
	if said, ok := u.raise(c.nodes[0]); ok || !strings.Contains(said, "from before there were feature levels: upgrade it") {
		t.Errorf("raise with the old program leading: %s", said)
	}
	u.installAll(old, c.binary)
	u.installAll(c.binary, old)
	u.installAll(old, c.binary)

	// One is taken back once more: it stops the raise.
	back := u.follower()
	u.install(back, old)
	u.leadBy(c.binary)
	if said, ok := u.raise(u.leader()); ok || !strings.Contains(said, "member "+back.ID+" runs a program that understands level 1 only: upgrade it") {
		t.Errorf("raise with %s on the old program: %s", back.ID, said)
	}
	back.process.stop()
	if said, ok := u.raise(u.leader()); ok || !strings.Contains(said, "member "+back.ID+" does not answer") {
		t.Errorf("raise with %s stopped: %s", back.ID, said)
	}
	back.binary = c.binary
	c.start()
	for _, n := range c.nodes {
		// It tells none until it has heard from the leader what is committed.
		await(t, patience, n.ID+" tells its level", func() bool { return u.level(n) > 0 })
		if got := u.level(n); got != 1 {
			t.Errorf("%s is at feature level %d before the raise", n.ID, got)
		}
	}
	before := u.snapshots()
	if said, ok := u.raise(u.follower()); !ok {
		t.Fatalf("raise: %s", said)
	}
	for _, n := range c.nodes {
		await(t, patience, n.ID+" knows that the level was raised", func() bool { return u.level(n) == uint32(storage.NewestLevel) })
	}

	// Its own schedule, the snapshot of another: the old program refuses each.
	u.awaitFlush(before)
	refused := u.follower()
	u.refuses(refused, old, "this program knows 1; run the program that wrote it")
	c.start()
	u.flush()
	u.flush() // the log is kept back to the flush before
	u.replaceWith(refused, old)
	u.install(refused, c.binary)
	u.ledger.settle(k, c, targetTopic, u.sent)
	u.ledger.verify(t, u.sent, u.restarts+3, c.elections())
}

// replaceWith gives the node an empty disk and the old program, which cannot read the snapshot that
// it is sent, says so, and never votes.
func (u *upgrade) replaceWith(n *carillonNode, old string) {
	u.t.Helper()
	n.process.kill()
	if err := os.RemoveAll(n.Data); err != nil {
		u.t.Fatal(err)
	}
	run(u.t, ".", nil, u.binary, "cluster", "replace", n.ID, "--api", u.leader().API)
	n.process = start(u.t, "old carillon "+n.ID, nil, old, "serve", "--config", n.config)
	await(u.t, patience, "the old program says that it cannot read the snapshot", func() bool {
		return strings.Contains(string(tail(n.process.log, 64<<10)), "stream header has version 3, this program knows 1; run the program that wrote it")
	})
	if n.ready() {
		u.t.Error("a node is ready that cannot read the snapshot")
	}
}

// flush has every node write its schedule to disk: it brings in more than stays in the log alone.
func (u *upgrade) flush() {
	u.t.Helper()
	const large = 900 << 10
	before := u.snapshots()
	producer := u.kafka.client()
	for range 45 {
		record := &kgo.Record{Topic: "large.delay", Value: make([]byte, large), Headers: []kgo.RecordHeader{{Key: client.HeaderAfter, Value: []byte("1s")}}}
		if err := producer.ProduceSync(u.t.Context(), record).FirstErr(); err != nil {
			u.t.Fatal(err)
		}
	}
	u.awaitFlush(before)
}

// snapshots returns how far the schedule on each node's disk goes.
func (u *upgrade) snapshots() map[string]uint64 {
	to := map[string]uint64{}
	for _, n := range u.nodes {
		body, err := n.get("/v1/status")
		var s struct {
			Raft struct {
				SnapshotIndex uint64 `json:"snapshot_index"`
			} `json:"raft"`
		}
		if err == nil && json.Unmarshal(body, &s) == nil {
			to[n.ID] = s.Raft.SnapshotIndex
		}
	}
	return to
}

func (u *upgrade) awaitFlush(before map[string]uint64) {
	u.t.Helper()
	for _, n := range u.nodes {
		await(u.t, patience, n.ID+" writes its schedule to disk", func() bool { return u.snapshots()[n.ID] > before[n.ID] })
	}
}
