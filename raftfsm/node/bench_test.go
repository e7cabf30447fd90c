package node

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
)

// realCluster is a cluster on loopback and the real clock.
func realCluster(t testing.TB, size int, tune func(*Config)) *cluster {
	var listeners []net.Listener
	for range size {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	c := newCluster(t, size, nil)
	for i, l := range listeners {
		c.members[i].Raft = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.tune = func(cfg *Config) {
		cfg.Listen, cfg.Dial, cfg.ListenAddr = nil, nil, ""
		cfg.FlushBytes, cfg.SegmentSize = 0, 0
		cfg.Heartbeat = 2 * time.Second // a busy machine is no failure here
		if tune != nil {
			tune(cfg)
		}
	}
	for _, m := range c.members {
		c.open(m.ID)
	}
	return c
}

// BenchmarkIngest prints messages of 1 KB committed and applied per second, all
// nodes in this process, with eight proposals in flight.
func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{1, 3} {
		for _, batch := range []int{64, 400} {
			b.Run(fmt.Sprintf("nodes=%d/batch=%d", size, batch), func(b *testing.B) {
				c := realCluster(b, size, nil)
				n := c.leader()
				l := startLoad(b, n)
				var waiting []*raftfsm.Proposal
				wait := func() {
					if _, err := waiting[0].Wait(b.Context()); err != nil {
						b.Fatal(err)
					}
					waiting = waiting[1:]
				}
				b.ResetTimer()
				busy := cpuTime(b)
				for range b.N {
					if len(waiting) == 8 {
						wait()
					}
					waiting = append(waiting, n.Propose(b.Context(), l.batch(batch, 1000)))
				}
				for len(waiting) > 0 {
					wait()
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "msg/s")
				b.ReportMetric(float64(cpuTime(b)-busy)/1e3/float64(b.N*batch), "cpu-µs/msg")
				c.closeAll()
			})
		}
	}
}

// cpuTime tells what a figure is worth when others use the machine as well.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRestart prints how long one node takes to open with pending messages and
// half a flush of log to apply, and from then to its first commit.
func BenchmarkRestart(b *testing.B) {
	for _, pending := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			c := realCluster(b, 1, func(cfg *Config) { cfg.Heartbeat = 0 })
			l := startLoad(b, c.leader())
			for l.next < int64(pending) {
				must(b, c.leader(), l.batch(1000, 100))
			}
			var opened, led time.Duration
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				c.closeAll()
				b.StartTimer()
				begin := time.Now()
				c.open("n1")
				opened += time.Since(begin)
				begin = time.Now()
				<-c.nodes["n1"].Terms()
				if err := c.nodes["n1"].Barrier(b.Context()); err != nil {
					b.Fatal(err)
				}
				led += time.Since(begin)
			}
			b.ReportMetric(opened.Seconds()*1e3/float64(b.N), "ms-open")
			b.ReportMetric(led.Seconds()*1e3/float64(b.N), "ms-lead")
			b.StopTimer()
			c.closeAll()
		})
	}
}
