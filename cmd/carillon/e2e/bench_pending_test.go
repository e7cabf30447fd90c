package e2e

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkPending prints what a million messages of 100 B, due tomorrow, cost one node that has
// nothing to do: memory, time from start to ready after a kill, and share of a core beside an empty node.
func BenchmarkPending(b *testing.B) {
	const messages = 1_000_000
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, delayTopic, targetTopic)
	c := startCarillon(b, k.addrs(), dirs(b, 1)...)
	node := c.nodes[0]
	b.ReportMetric(node.process.load(b), "empty-cpu-%")

	c.preload(k, messages)
	b.ReportMetric(node.process.load(b), "loaded-cpu-%")
	b.ReportMetric(node.process.anonymousMB(b), "loaded-rss-MB")

	var took []time.Duration
	var busy int
	for range 5 {
		node.process.kill()
		from := time.Now()
		c.start()
		took = append(took, time.Since(from))
		busy += node.process.ticks(b)
	}
	b.Logf("ready after a kill: %v", took)
	b.ReportMetric(float64(busy)*1000/ticksPerSecond/float64(len(took)), "kill-to-ready-cpu-ms")
	b.ReportMetric(slices.Min(took).Seconds(), "least-kill-to-ready-s")
	b.ReportMetric(slices.Max(took).Seconds(), "most-kill-to-ready-s")
	b.ReportMetric(node.process.load(b), "restarted-cpu-%")
	b.ReportMetric(node.process.anonymousMB(b), "restarted-rss-MB")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdle prints what three nodes that have nothing to do cost together, as share of a core.
func BenchmarkIdle(b *testing.B) {
	k := startKafka(b, freeAddrs(b, 1)...)
	k.create(benchPartitions, delayTopic, targetTopic)
	c := startCarillon(b, k.addrs(), dirs(b, 3)...)
	leader := c.leader()
	var leads, follows float64
	var loads sync.WaitGroup
	var mu sync.Mutex
	for range 3 {
		for _, node := range c.nodes {
			loads.Go(func() {
				load := node.process.load(b)
				mu.Lock()
				defer mu.Unlock()
				if node == leader {
					leads += load / 3
				} else {
					follows += load / 3
				}
			})
		}
		loads.Wait()
	}
	b.ReportMetric(leads, "leader-cpu-%")
	b.ReportMetric(follows, "followers-cpu-%")
	b.ReportMetric(leads+follows, "cpu-%")
	b.ReportMetric(0, "ns/op")
}

// anonymousMB returns the memory of a process that no file backs.
func (p *process) anonymousMB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1024
		}
	}
	b.Fatal("/proc says nothing about RssAnon")
	return 0
}

const ticksPerSecond = 100 // of the processor's clock, on every Linux that Go runs on

// load returns the share of a core, in per cent, that a process takes over 20 seconds.
func (p *process) load(b *testing.B) float64 {
	b.Helper()
	const window = 20 * time.Second
	before := p.ticks(b)
	<-time.After(window)
	return float64(p.ticks(b)-before) / ticksPerSecond / window.Seconds() * 100
}

// ticks returns the processor time of a process so far.
func (p *process) ticks(b *testing.B) int {
	b.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	// The name, in parentheses, may hold spaces; user and system time are fields 14 and 15.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		b.Fatal(err)
	}
	system, err := strconv.Atoi(fields[12])
	if err != nil {
		b.Fatal(err)
	}
	return user + system
}
