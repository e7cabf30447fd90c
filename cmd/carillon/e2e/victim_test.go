package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A powerVictim is a process with nodes on a disk that it cuts off itself, in the middle of what it
// was told to wait for. It ends by a signal soon after. What it says on its standard output, a
// line each:
//
//	state N     the schedule holds the first N commands, whole
//	propose N   command N is proposed
//	acked N     command N is committed
//	has N       the follower on the disk has acknowledged the log up to entry N
//	cut ...     what is in progress as the disk is cut off, said before that. A sync that was
//	            in progress may succeed though nothing was written (seen with Linux 6.18), which
//	            no power cut would let anybody know: what is acknowledged later does not count
//	fail ...    what is wrong
type powerVictim struct {
	Disk   string // mount point of the disk
	Alone  string // data directory of a node of one, on the disk; empty: the cluster runs
	Peers  [2]string
	Third  string // data directory of the third member, on the disk
	Addrs  [3]string
	During string // an operation; empty: nothing is cut off, what is there is checked
	Low    int    // so many commands were acknowledged
	High   int    // and so many proposed
	Seed   uint64

	random *rand.Rand
	isCut  atomic.Bool
	nodes  [3]atomic.Pointer[node.Node]
}

const victimEnv = "CARILLON_POWER_VICTIM"

// runVictim is what this test's program does as a victim.
func runVictim(settings string) {
	v := new(powerVictim)
	if err := json.Unmarshal([]byte(settings), v); err != nil {
		v.fail(err)
		return
	}
	v.random = rand.New(rand.NewPCG(v.Seed, 2))
	run := v.runCluster
	if v.Alone != "" {
		run = v.runAlone
	}
	if err := run(); err != nil {
		if v.isCut.Load() {
			select {} // it is about to be killed
		}
		v.fail(err)
	}
}

func (v *powerVictim) fail(err error) { v.say("fail %s", strings.ReplaceAll(err.Error(), "\n", " | ")) }

func (v *powerVictim) say(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

// The operations, each with what a goroutine's stack has while it is in progress.
var operations = []struct{ name, frame string }{
	{"append", "raft-wal/segment.(*Writer).Append("},
	{"rotation", "raft-wal.(*WAL).rotateSegmentLocked("},
	{"log cut", "raft-wal.(*WAL).DeleteRange("},
	{"vote", "raft-boltdb/v2.(*BoltStore).Set("},
	{"flush", "storage.(*Frozen).Flush("},
	{"merge", "storage.(*Store).Merge("},
	{"alive-set", "storage.(*manifest).storeAlive("},
	{"manifest", "storage.write("},
	{"receive", "storage.(*Receiver)."},
	{"start", "raftfsm/node.(*Node).open("},
}

// inProgress names the operations that are.
func inProgress() (names []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, op := range operations {
		if bytes.Contains(buf, []byte(op.frame)) {
			names = append(names, op.name)
		}
	}
	return names
}

// cutDuring waits for the operation, and a little longer, and cuts the disk off.
func (v *powerVictim) cutDuring(after time.Duration) {
	<-time.After(after)
	longer := time.Duration(v.random.IntN(3)*v.random.IntN(300)) * time.Microsecond
	for give := time.Now().Add(15 * time.Second); time.Now().Before(give); <-time.After(200 * time.Microsecond) {
		if strings.Contains(strings.Join(inProgress(), " "), v.During) {
			break
		}
	}
	for begin := time.Now(); time.Since(begin) < longer; {
		runtime.Gosched()
	}
	ops := inProgress()
	v.isCut.Store(true)
	v.say("cut %s", strings.Join(ops, ","))
	if err := cutOff(v.Disk); err != nil {
		v.fail(err)
	}
	<-time.After(time.Duration(v.random.IntN(20)) * time.Millisecond)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (v *powerVictim) open(i int, dir string, members []member.Member) (*node.Node, error) {
	n, err := node.Open(context.Background(), node.Config{
		NodeID: members[i].ID, DataDir: dir, ClusterName: "power", Members: members, Bootstrap: true,
		Heartbeat: 100 * time.Millisecond, FlushBytes: 128 << 10, SegmentSize: 128 << 10,
		AskMember: v.ask, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		v.nodes[i].Store(n)
	}
	return n, err
}

// ask stands in for the API.
func (v *powerVictim) ask(_ context.Context, m member.Member) (member.Standing, error) {
	if n := v.nodes[m.ID[1]-'1'].Load(); n != nil {
		return n.Standing(), nil
	}
	return member.Standing{}, errors.New("not open")
}

func (v *powerVictim) members(n int) (all []member.Member) {
	for i := range n {
		all = append(all, member.Member{ID: fmt.Sprintf("n%d", i+1), Raft: v.Addrs[i], API: v.Addrs[i]})
	}
	return all
}

func (v *powerVictim) runAlone() error {
	if v.During == "start" || v.During == "vote" {
		go v.cutDuring(time.Duration(v.random.IntN(10)) * time.Millisecond)
	}
	n, err := v.open(0, v.Alone, v.members(1))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	_, count, err := v.awaitState(n)
	if err != nil || v.During == "" {
		return errors.Join(err, n.Close())
	}
	if v.During != "start" && v.During != "vote" {
		go v.cutDuring(time.Duration(v.random.IntN(300)) * time.Millisecond)
	}
	return v.propose(n, count, 1<<30)
}

// awaitState waits until one of the nodes leads, and finds out which commands its schedule holds.
func (v *powerVictim) awaitState(nodes ...*node.Node) (leader *node.Node, count int, err error) {
	for give := time.Now().Add(patience); leader == nil; {
		for _, n := range nodes {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if err = n.Barrier(ctx); err == nil {
				leader = n
			}
			cancel()
		}
		if leader == nil && time.Now().After(give) {
			return nil, 0, fmt.Errorf("no leader: %w", err)
		}
	}
	count, err = findState(leader.Store(), v.Low, v.High)
	if err == nil {
		err = leader.Store().Check()
	}
	if err != nil {
		return nil, 0, err
	}
	v.say("state %d", count)
	v.Low, v.High = count, count
	return leader, count, nil
}

// propose proposes commands from number on, a few at a time.
func (v *powerVictim) propose(n *node.Node, from, to int) error {
	type proposed struct {
		number int
		*raftfsm.Proposal
	}
	var waiting []proposed
	for number := from; number < to || len(waiting) > 0; number++ {
		if number < to {
			v.say("propose %d", number)
			v.High = number + 1
			waiting = append(waiting, proposed{number, n.Propose(context.Background(), commandOf(number))})
		}
		if len(waiting) < 4 && number < to {
			continue
		}
		if _, err := waiting[0].Wait(context.Background()); err != nil {
			if v.isCut.Load() {
				select {}
			}
			return fmt.Errorf("command %d: %w", waiting[0].number, err)
		}
		v.say("acked %d", waiting[0].number)
		v.Low = waiting[0].number + 1
		waiting = waiting[1:]
	}
	return nil
}

// runCluster has the third member fall behind the others' log, and join them again by a
// snapshot, over and over.
func (v *powerVictim) runCluster() error {
	members := v.members(3)
	var peers []*node.Node
	for i, dir := range v.Peers {
		n, err := v.open(i, dir, members)
		if err != nil {
			return fmt.Errorf("open %s: %w", members[i].ID, err)
		}
		peers = append(peers, n)
	}
	if _, err := os.Stat(filepath.Join(v.Third, "node.json")); err != nil { // all found it together
		n, err := v.open(2, v.Third, members)
		if err != nil {
			return err
		}
		if _, _, err := v.awaitState(append(peers, n)...); err != nil {
			return err
		}
		v.nodes[2].Store(nil)
		if err := n.Close(); err != nil {
			return err
		}
	}
	leader, count, err := v.awaitState(peers...)
	if err != nil {
		return err
	}
	if v.During != "" {
		go v.cutDuring(0)
	}
	for ; ; count = v.Low {
		for err := v.propose(leader, count, count+60); err != nil; err = v.propose(leader, count, v.Low+60) {
			if errors.Is(err, raftfsm.ErrInDoubt) || errors.Is(err, raftfsm.ErrNotLeader) { // a busy machine
				leader, count, err = v.awaitState(peers...)
			}
			if err != nil {
				return err
			}
		}
		if err := v.catchUp(leader, members); err != nil || v.During == "" {
			return errors.Join(err, peers[0].Close(), peers[1].Close())
		}
	}
}

// catchUp opens the third member until it is where the leader is, and compares them.
func (v *powerVictim) catchUp(leader *node.Node, members []member.Member) error {
	n, err := v.open(2, v.Third, members)
	if err != nil {
		return fmt.Errorf("open n3: %w", err)
	}
	want := leader.Store().State().AppliedIndex
	for give := time.Now().Add(patience); n.Store().State().AppliedIndex < want; <-time.After(time.Millisecond) {
		if time.Now().After(give) {
			return fmt.Errorf("n3 has not caught up: %+v", n.Status())
		}
	}
	v.say("has %d", n.Status().LastIndex)
	if err := n.Store().Check(); err != nil {
		return fmt.Errorf("n3: %w", err)
	}
	ours, err := n.Store().Digest()
	if err != nil {
		return fmt.Errorf("n3: %w", err)
	}
	if theirs, err := leader.Store().Digest(); err != nil || ours != theirs {
		return fmt.Errorf("n3 differs from the leader (%w)", err)
	}
	v.nodes[2].Store(nil)
	return n.Close()
}

// What the commands do, as a function of their numbers alone: three of four accept batch of
// messages, the others end some or move the claim. Most messages live for ten batches, one in
// twenty for forty.
const (
	batch     = 20
	shortLife = 10
	longLife  = 40
	raisedAt  = 150 // to the newest feature level
)

var powerTopic = [16]byte{0xca, 0xb1, 0xe0}

func kind(number int) string {
	switch {
	case number == 0:
		return "positions"
	case number == raisedAt:
		return "raise"
	case number%8 == 3:
		return "end"
	case number%8 == 6:
		return "claim"
	}
	return "accept"
}

// A model is the schedule after the first commands.
type model struct {
	count   int
	batches int
	claimed int64
	alive   map[uint64]bool // seqs
	level   storage.Level
}

func newModel() *model { return &model{alive: map[uint64]bool{}, level: storage.LevelOne} }

// message is what becomes the one with this seq.
func message(seq uint64) storage.Entry {
	random := rand.New(rand.NewPCG(seq, 3))
	body := bytes.Repeat([]byte{byte(seq)}, 200+random.IntN(2000))
	return storage.Entry{Due: int64(random.IntN(1_000_000)), Seq: seq, Target: fmt.Sprintf("target-%d", seq%5), Body: body}
}

// ended returns what dies when so many batches were accepted.
func ended(batches int) (runs []storage.SeqRun) {
	for b := max(0, batches-longLife-20); b < batches-shortLife; b++ {
		first := uint64(b*batch + 1)
		if b < batches-longLife {
			runs = append(runs, storage.SeqRun{First: first, Last: first + batch - 1})
		} else {
			runs = append(runs, storage.SeqRun{First: first, Last: first + batch - 2})
		}
	}
	return runs
}

// batchesBefore returns how many commands below number accept messages: six of each eight.
func batchesBefore(number int) int {
	n := number / 8 * 6
	for i := number / 8 * 8; i < number; i++ {
		if i%8 != 3 && i%8 != 6 {
			n++
		}
	}
	return n - min(number, 1) // the first one does not
}

func commandOf(number int) raftfsm.Command {
	time, batches := int64(number+1), batchesBefore(number)
	switch kind(number) {
	case "positions":
		return raftfsm.SetPositions{Time: time, Surveyed: true, Sets: []raftfsm.PositionSet{
			{Position: storage.Position{Topic: "a.delay", TopicID: powerTopic, Epoch: -1}, From: raftfsm.FromAbsent}}}
	case "raise":
		return raftfsm.RaiseLevel{Time: time, Level: storage.NewestLevel}
	case "end":
		return raftfsm.Ack{Time: time, Runs: ended(batches)}
	case "claim":
		return raftfsm.ClaimCommand{Time: time, Claim: storage.Claim{Through: time}}
	}
	part := raftfsm.Part{TopicID: powerTopic, Topic: "a.delay", From: int64(batches * batch), Next: int64((batches + 1) * batch), Epoch: -1}
	for i := range uint64(batch) {
		e := message(uint64(batches*batch) + i + 1)
		e.Seq = 0
		part.Entries = append(part.Entries, e)
	}
	return raftfsm.Ingest{Time: time, Parts: []raftfsm.Part{part}}
}

func (m *model) apply() {
	switch kind(m.count) {
	case "raise":
		m.level = storage.NewestLevel
	case "claim":
		m.claimed = int64(m.count + 1)
	case "end":
		for _, run := range ended(m.batches) {
			for seq := run.First; seq <= run.Last; seq++ {
				delete(m.alive, seq)
			}
		}
	case "accept":
		for i := range uint64(batch) {
			m.alive[uint64(m.batches*batch)+i+1] = true
		}
		m.batches++
	}
	m.count++
}

// findState returns how many commands make what the store holds, between low and high.
func findState(s *storage.Store, low, high int) (int, error) {
	m := newModel()
	for m.count < low {
		m.apply()
	}
	for ; ; m.apply() {
		err := m.compare(s)
		if err == nil {
			return m.count, nil
		}
		if m.count >= high {
			return 0, fmt.Errorf("the schedule is that of no number of commands from %d to %d; compared with the last: %w", low, high, err)
		}
	}
}

func (m *model) compare(s *storage.Store) error {
	state := s.State()
	if int(state.NextSeq) != m.batches*batch+1 || state.Claim.Through != m.claimed || state.Pending != uint64(len(m.alive)) || state.Level != m.level {
		return fmt.Errorf("%d messages were accepted, %d are pending, claimed through %d, level %d; want %d, %d, %d, %d",
			state.NextSeq-1, state.Pending, state.Claim.Through, state.Level, m.batches*batch, len(m.alive), m.claimed, m.level)
	}
	if m.count > 0 && (len(state.Positions) != 1 || int(state.Positions[0].Next) != m.batches*batch) || m.count == 0 && len(state.Positions) > 0 {
		return fmt.Errorf("positions %+v after %d messages", state.Positions, m.batches*batch)
	}
	var refs []storage.Ref
	var items []storage.Item
	for from, done := (storage.Ref{}), false; !done; {
		var err error
		if items, from, done, err = s.Scan(from, storage.Ref{}, len(items)+1000, nil, items); err != nil {
			return err
		}
	}
	for _, item := range items {
		refs = append(refs, item.Ref)
	}
	entries, err := s.Read(refs, nil)
	if err != nil {
		return err
	}
	if len(entries) != len(m.alive) {
		return fmt.Errorf("%d messages can be read, %d are alive", len(entries), len(m.alive))
	}
	for _, e := range entries {
		want := message(e.Seq)
		if !m.alive[e.Seq] || e.Due != want.Due || e.Target != want.Target || !bytes.Equal(e.Body, want.Body) {
			return fmt.Errorf("message %d due %d for %s is not as it was accepted, or dead", e.Seq, e.Due, e.Target)
		}
	}
	return nil
}
