package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillonmq/carillon/cmd/carillon/e2e/torture"
)

// A victim is a node or a broker. Whoever does something to its process, plug, link or disk holds
// that lock until it is well again.
type victim struct {
	name   string
	node   *carillonNode // or
	broker *kafkaBroker
	disk   *disk // of a node; nil: it has none of its own

	process, plug, link, space sync.Mutex

	excused bool // it has ended while its disk was full; of the supervisor
}

// running returns the process; the lock is held.
func (v *victim) running() *process {
	if v.node != nil {
		return v.node.process
	}
	return v.broker.process
}

// launch starts the process again; the lock is held.
func (o *ordeal) launch(v *victim) {
	if v.node != nil {
		v.node.launch(o.t)
	} else {
		o.kafka.launch(v.broker)
	}
}

// write adds a line to the log of faults.
func (o *ordeal) write(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.log, "%s episode %d: %s\n", time.Now().UTC().Format("15:04:05.000"), o.episode, fmt.Sprintf(format, args...))
}

// carryOutAll carries out one episode after the other, each when the one before is recovered from.
func (o *ordeal) carryOutAll(script []torture.Episode) {
	for i, episode := range script {
		o.mu.Lock()
		o.episode = i + 1
		o.mu.Unlock()
		var all sync.WaitGroup
		for _, fault := range episode {
			all.Go(func() {
				<-time.After(fault.At)
				o.carryOut(fault)
			})
		}
		all.Wait()
		began := time.Now()
		if !o.isCalm(fmt.Sprintf("after episode %d", i+1)) {
			return
		}
		o.write("on time again %.1f s after the last fault", time.Since(began).Seconds())
		if (i+1)%20 == 0 {
			o.t.Logf("%d episodes, %d faults", i+1, len(o.strikes))
		}
	}
}

// isCalm waits until all is on time, or, on a machine that is too busy for that, until nothing is left
// of the backlog.
func (o *ordeal) isCalm(when string) bool {
	o.t.Helper()
	began := time.Now()
	return o.expect(4*patience, "deliveries are on time "+when, func() bool {
		late := torture.OnTime
		if time.Since(began) > patience/4 {
			late = 5 * time.Second
		}
		return o.ledger.Calm(began, time.Now(), late)
	})
}

// expect is await for a test that goes on, to say what else is wrong.
func (o *ordeal) expect(limit time.Duration, what string, ok func() bool) bool {
	o.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			o.t.Errorf("not within %v: %s", limit, what)
			return false
		}
	}
	return true
}

// strike does something to what is named, for as long as the fault lasts.
func (o *ordeal) strike(f torture.Fault, struck string, begin, end func() error) {
	s := torture.Strike{Fault: f, Struck: struck, Begin: time.Now()}
	o.write("%s: %s for %.1f s", f, struck, f.Lasts.Seconds())
	if err := begin(); err != nil {
		o.t.Errorf("%s: %v", f, err)
	}
	<-time.After(f.Lasts)
	if err := end(); err != nil {
		o.t.Errorf("end of %s: %v", f, err)
	}
	s.End = time.Now()
	o.write("%s: over", f)
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Episode = o.episode
	o.strikes = append(o.strikes, s)
}

// on returns whom a fault strikes, and the other one of a pair.
func (o *ordeal) on(f torture.Fault) (v, with *victim) {
	name := f.On
	if name == torture.Leader {
		name = o.presentLeader(f.Number)
	}
	other := f.With
	if other == name {
		other = o.nodes.nodes[f.Number%2].ID
		if other == name {
			other = o.nodes.nodes[2].ID
		}
	}
	return o.victims[name], o.victims[other]
}

// presentLeader returns the node that leads, of the highest term that is claimed; when none does, any.
func (o *ordeal) presentLeader(number int) string {
	var asked sync.WaitGroup
	said := make([]status, len(o.nodes.nodes))
	for i, n := range o.nodes.nodes {
		asked.Go(func() {
			if s, err := n.status(); err == nil {
				said[i] = s
			}
		})
	}
	asked.Wait()
	leader, term := o.nodes.nodes[number%len(said)].ID, uint64(0)
	for i, s := range said {
		if s.State == "leader" && s.Term > term {
			leader, term = o.nodes.nodes[i].ID, s.Term
		}
	}
	return leader
}

// carryOut carries out one fault from beginning to end.
func (o *ordeal) carryOut(f torture.Fault) {
	if f.Kind == torture.RollNodes {
		o.strike(f, "all nodes", o.roll, func() error { return nil })
		return
	}
	v, with := o.on(f)
	named := v.name
	switch f.Kind {
	case torture.KillNode, torture.KillBroker:
		v.process.Lock()
		defer v.process.Unlock()
		o.strike(f, named, func() error { v.running().kill(); return nil }, func() error { o.launch(v); return nil })
	case torture.StopNode, torture.StopBroker:
		v.process.Lock()
		defer v.process.Unlock()
		o.strike(f, named, v.signals(syscall.SIGSTOP), v.signals(syscall.SIGCONT))
	case torture.FillDisk:
		v.space.Lock()
		defer v.space.Unlock()
		// Every other time down to the reserve at which a node stops accepting, else nearly to the last
		// byte; the file that fills the disk needs some blocks for itself.
		rest := int64(16 << 20)
		if f.Number%2 == 0 {
			rest = 256 << 10
		}
		var free func()
		o.strike(f, fmt.Sprintf("%s, %d KiB left", named, rest>>10), func() error { free = v.disk.fill(rest); return nil }, func() error { free(); return nil })
	case torture.CutNode, torture.CutBroker:
		v.plug.Lock()
		defer v.plug.Unlock()
		host := o.network.hosts[v.name]
		o.strike(f, named, func() error { return host.pull(true) }, func() error { return host.pull(false) })
	case torture.SlowNode, torture.SlowBroker:
		v.link.Lock()
		defer v.link.Unlock()
		host := o.network.hosts[v.name]
		o.strike(f, named, func() error { return o.network.slow(host, true) }, func() error { return o.network.slow(host, false) })
	case torture.LossyNode:
		host := o.network.hosts[v.name]
		o.strike(f, named, func() error { return host.lossy(true) }, func() error { return host.lossy(false) })
	case torture.PartNodes, torture.PartBroker:
		o.part(f, v, []*victim{with}, true)
	case torture.MuteNode:
		o.part(f, v, []*victim{with}, false)
	case torture.PartKafka:
		var brokers []*victim
		for _, b := range o.kafka.brokers {
			brokers = append(brokers, o.victims[fmt.Sprintf("k%d", b.ID)])
		}
		o.part(f, v, brokers, true)
	default:
		o.t.Errorf("nothing is known of the fault %q", f.Kind)
	}
}

// part has the others lose what comes from one, and, if both ways, the one what comes from them.
func (o *ordeal) part(f torture.Fault, one *victim, others []*victim, bothWays bool) {
	set := func(deaf bool) func() error {
		return func() error {
			for _, other := range others {
				here, there := o.network.hosts[one.name], o.network.hosts[other.name]
				if err := there.deafen(here, deaf); err != nil {
					return err
				}
				if !bothWays {
					continue
				}
				if err := here.deafen(there, deaf); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var names []string
	for _, other := range others {
		names = append(names, other.name)
	}
	o.strike(f, one.name+" and "+strings.Join(names, ", "), set(true), set(false))
}

func (v *victim) signals(sig syscall.Signal) func() error {
	return func() error { v.running().send(sig); return nil }
}

// roll restarts the nodes one by one, each when the one before is ready again, or has had its time.
func (o *ordeal) roll() error {
	for _, n := range o.nodes.nodes {
		if err := o.restart(o.victims[n.ID]); err != nil {
			return err
		}
	}
	return nil
}

func (o *ordeal) restart(v *victim) error {
	v.process.Lock()
	defer v.process.Unlock()
	p := v.node.process
	p.stop()
	// What was started just now may not have come to handle the signal, nor to write a line.
	if how := p.cmd.ProcessState; how.ExitCode() != 0 && len(tail(p.log, 1)) > 0 {
		return fmt.Errorf("%s did not end well within %v of SIGTERM: %v", v.name, patience, how)
	}
	o.launch(v)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience / 4); !v.node.ready() && time.Now().Before(deadline); <-tick.C {
	}
	return nil
}

// supervise starts processes again that have ended by themselves, as whatever runs a service does, and
// notes them. Only a full disk is an excuse. It returns what ends it.
func (o *ordeal) supervise() (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for _, v := range o.victims {
				o.revive(v)
			}
		}
	})
	return sync.OnceFunc(func() { close(done); all.Wait() })
}

func (o *ordeal) revive(v *victim) {
	if !v.process.TryLock() {
		return // something is done to it
	}
	defer v.process.Unlock()
	p := v.running()
	if p.running() {
		return
	}
	if !v.space.TryLock() {
		v.excused = true
		return // it is started when the disk has room
	}
	defer v.space.Unlock()
	o.write("%s ended by itself: %v, log %s", v.name, p.cmd.ProcessState, p.log)
	if !v.excused {
		o.t.Errorf("%s ended by itself: %v\n%s", v.name, p.cmd.ProcessState, tail(p.log, 1<<10))
	}
	v.excused = false
	o.launch(v)
}
