package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Kind is what a fault does.
type Kind string

// The kinds of faults. A name is also the row of the report.
const (
	KillNode   Kind = "kill -9 node"
	StopNode   Kind = "freeze node"
	RollNodes  Kind = "rolling restart"
	FillDisk   Kind = "disk full"
	CutNode    Kind = "node off the net"
	PartNodes  Kind = "two nodes apart"
	MuteNode   Kind = "one-way between nodes"
	PartKafka  Kind = "node apart from Kafka"
	SlowNode   Kind = "slow link of node"
	LossyNode  Kind = "lossy link of node"
	KillBroker Kind = "kill -9 broker"
	StopBroker Kind = "freeze broker"
	CutBroker  Kind = "broker off the net"
	SlowBroker Kind = "slow link of broker"
	PartBroker Kind = "two brokers apart"
)

// A trait says what a kind needs and how long it may last.
type trait struct {
	kind     Kind
	from, to time.Duration
	network  bool // needs namespaces
	disk     bool // needs a disk of its own for each node
	brokers  int  // at least
}

// Lengths lie on both sides of what the product and Kafka wait for: a heartbeat (300 ms), the session
// of a broker (3 s), a record without an answer (5 s), a Kafka without an answer (10 s).
func traits() []trait {
	const s = time.Second
	return []trait{
		{kind: KillNode, from: 0, to: 8 * s},
		{kind: StopNode, from: s / 5, to: 12 * s},
		{kind: RollNodes},
		{kind: FillDisk, from: 4 * s, to: 12 * s, disk: true},
		{kind: CutNode, from: s / 2, to: 14 * s, network: true},
		{kind: PartNodes, from: s / 2, to: 14 * s, network: true},
		{kind: MuteNode, from: s / 2, to: 14 * s, network: true},
		{kind: PartKafka, from: s, to: 16 * s, network: true},
		{kind: SlowNode, from: 3 * s, to: 12 * s, network: true},
		{kind: LossyNode, from: 3 * s, to: 12 * s, network: true},
		{kind: KillBroker, from: 0, to: 8 * s},
		{kind: StopBroker, from: s / 2, to: 12 * s},
		{kind: CutBroker, from: s / 2, to: 12 * s, network: true},
		{kind: SlowBroker, from: 3 * s, to: 12 * s, network: true},
		{kind: PartBroker, from: s, to: 12 * s, network: true, brokers: 2},
	}
}

// Leader stands for the node that leads when the fault begins.
const Leader = "leader"

// A Fault is one entry of a script.
type Fault struct {
	Number int // from 1
	Kind   Kind
	On     string        // "n1", "k2" or Leader; "" for all nodes in turn
	With   string        // the other end of a partition between two, or of what goes one way
	At     time.Duration // after the beginning of its episode
	Lasts  time.Duration
}

// String returns the fault as the log and the report name it.
func (f Fault) String() string {
	text := fmt.Sprintf("%d %s %s", f.Number, f.Kind, f.On)
	if f.With != "" {
		text += " " + f.With
	}
	return strings.TrimSpace(text)
}

// An Episode is faults that may overlap. The next one begins when deliveries are on time again.
type Episode []Fault

// A Setting is what a script is drawn for.
type Setting struct {
	Seed           uint64
	Faults         int
	Nodes, Brokers int
	Network, Disks bool // what the machine can do
}

// Kinds returns the kinds of faults that can be carried out.
func (s Setting) Kinds() []Kind {
	var kinds []Kind
	for _, t := range s.traits() {
		kinds = append(kinds, t.kind)
	}
	return kinds
}

func (s Setting) traits() []trait {
	return slices.DeleteFunc(traits(), func(t trait) bool {
		return t.network && !s.Network || t.disk && !s.Disks || t.brokers > s.Brokers
	})
}

// Draw returns a script: the same for the same setting. Every kind comes as often as any other, give
// or take one; two of five episodes have one fault alone, so that recovery from each kind can be
// told apart.
func Draw(s Setting) []Episode {
	random := rand.New(rand.NewPCG(s.Seed, uint64(s.Brokers)))
	possible := s.traits()
	var script []Episode
	var bag []trait
	for number := 1; number <= s.Faults; {
		size := 1
		if random.IntN(5) > 1 {
			size = 2 + random.IntN(5)
		}
		var episode Episode
		var at time.Duration
		for range min(size, s.Faults-number+1) {
			if len(bag) == 0 {
				bag = slices.Clone(possible)
				random.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
			}
			fault := s.fault(random, bag[0])
			bag = bag[1:]
			fault.Number, fault.At = number, at
			episode = append(episode, fault)
			at += time.Duration(random.IntN(4000)) * time.Millisecond
			number++
		}
		script = append(script, episode)
	}
	return script
}

func (s Setting) fault(random *rand.Rand, t trait) Fault {
	name := func(prefix string, n int) string { return fmt.Sprintf("%s%d", prefix, 1+n) }
	f := Fault{Kind: t.kind}
	f.Lasts = t.from.Truncate(time.Millisecond)
	if more := (t.to - t.from).Milliseconds(); more > 0 {
		f.Lasts += time.Duration(random.Int64N(more)) * time.Millisecond
	}
	switch t.kind {
	case RollNodes:
	case KillBroker, StopBroker, CutBroker, SlowBroker:
		f.On = name("k", random.IntN(s.Brokers))
	case PartBroker:
		two := random.Perm(s.Brokers)
		f.On, f.With = name("k", two[0]), name("k", two[1])
	case PartNodes, MuteNode:
		two := random.Perm(s.Nodes)
		f.On, f.With = name("n", two[0]), name("n", two[1])
		if random.IntN(2) == 0 {
			f.On = Leader // the other end is chosen anew when that is the leader
		}
	default:
		f.On = name("n", random.IntN(s.Nodes))
		if random.IntN(2) == 0 {
			f.On = Leader
		}
	}
	return f
}
