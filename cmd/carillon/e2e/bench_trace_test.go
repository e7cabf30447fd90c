package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A trace tells second by second how late messages came out, beside what the processes and the disk did: what stood
// still, and for how long.
type trace struct {
	b     *testing.B
	load  []*process
	nodes []*carillonNode // none: a bare loop passes the messages on
	began time.Time
	stop  chan struct{}
	done  sync.WaitGroup

	late    [][]time.Duration // by second; the consumer's
	seconds []second          // the watcher's

	mu    sync.Mutex
	syncs time.Duration // the longest of the plain writer since it was last asked
}

// A second is what is known at its end.
type second struct {
	spent   []time.Duration // processor time of the processes, and of this one, so far
	metrics map[string]float64
	dirty   float64 // MB of all files that the kernel has not begun to write, and those that it writes
	written float64 // likewise
	sync    time.Duration
}

// newTrace begins to watch. A plain writer beside appends 4 KB to a file twenty times a second, and syncs it: what
// takes it long is the disk's and the kernel's doing, whoever writes.
func newTrace(b *testing.B, load []*process, nodes []*carillonNode) *trace {
	t := &trace{b: b, load: load, nodes: nodes, began: time.Now(), stop: make(chan struct{})}
	plain, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	t.done.Go(func() {
		defer plain.Close()
		every(50*time.Millisecond, t.stop, func() { t.syncOnce(plain) })
	})
	t.look()
	t.done.Go(func() { every(time.Second, t.stop, t.look) })
	return t
}

func every(pause time.Duration, stop <-chan struct{}, f func()) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			f()
		}
	}
}

func (t *trace) syncOnce(plain *os.File) {
	begun := time.Now()
	_, err := plain.Write(make([]byte, 4<<10))
	if err == nil {
		err = syscall.Fdatasync(int(plain.Fd()))
	}
	if err != nil {
		t.b.Error(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.syncs = max(t.syncs, time.Since(begun))
}

// take notes a message that was consumed.
func (t *trace) take(now time.Time, late time.Duration) {
	at := int(now.Sub(t.began) / time.Second)
	for len(t.late) <= at {
		t.late = append(t.late, nil)
	}
	t.late[at] = append(t.late[at], late)
}

// look notes what a second has brought.
func (t *trace) look() {
	s := second{spent: append(ticksOf(t.b, t.load), ownTime(t.b)), metrics: make(map[string]float64)}
	for _, n := range t.nodes {
		body, _ := n.get("/metrics") // a node that does not answer shows as zeroes
		for line := range strings.Lines(string(body)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if f, err := strconv.ParseFloat(value, 64); err == nil {
				s.metrics[name] = f
			}
		}
	}
	s.dirty, s.written = memInfo("Dirty:"), memInfo("Writeback:")
	t.mu.Lock()
	s.sync, t.syncs = t.syncs, 0
	t.mu.Unlock()
	t.seconds = append(t.seconds, s)
}

// memInfo returns what the kernel says of its memory, in MB; 0 if it says nothing.
func memInfo(name string) float64 {
	info, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kb / 1024
		}
	}
	return 0
}

// finish prints a line for each second and returns how late all messages were, in the order in which they came.
func (t *trace) finish() (lateness []time.Duration) {
	close(t.stop)
	t.done.Wait()
	var text strings.Builder
	text.WriteString("second: messages out, p50, p99 and longest of their lateness; a plain writer's longest sync; MB dirty, written back;\n" +
		"processor time of Kafka, node (if any) and this process; of a node flushes, merges, MB unsaved, pending, lag\n")
	for i, late := range t.late {
		lateness = append(lateness, late...)
		if i+1 >= len(t.seconds) {
			continue
		}
		last, now := t.seconds[i], t.seconds[i+1]
		sorted := slices.Sorted(slices.Values(late))
		at := func(share float64) time.Duration {
			if len(sorted) == 0 {
				return 0
			}
			return sorted[int(share*float64(len(sorted)-1))].Round(time.Millisecond)
		}
		fmt.Fprintf(&text, "%3d: %6d %6v %6v %6v; %6v; %4.0f %4.0f;", i, len(late), at(0.5), at(0.99), at(1), now.sync.Round(time.Millisecond), now.dirty, now.written)
		for j := range now.spent {
			fmt.Fprintf(&text, " %4v", (now.spent[j] - last.spent[j]).Round(10*time.Millisecond))
		}
		if len(t.nodes) > 0 {
			m := now.metrics
			fmt.Fprintf(&text, "; %.0f %.0f %3.0f %6.0f %6.0f", m["carillon_storage_flushes_total"], m["carillon_storage_merges_total"],
				m["carillon_raft_unsaved_bytes"]/1e6, m["carillon_pending"], m["carillon_ingest_lag"])
		}
		text.WriteByte('\n')
	}
	t.b.Log(text.String())
	return lateness
}
