package node

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm/repeats"
)

func TestLog_saysOnceAMinuteThatAPeerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		logger := newHCLogger(log.logger(), "raft")
		fail := func() {
			for range 10 {
				logger.Error("failed to heartbeat to", "peer", raft.ServerAddress("b:1"), "error", io.EOF)
				logger.Error("failed to heartbeat to", "peer", raft.ServerAddress("c:1"), "error", io.EOF)
				logger.Error("failed to appendEntries to", "peer", raft.Server{ID: "n2", Address: "b:1"}, "error", errors.New("reset"))
				logger.Warn("failed to get log", "index", 7, "err", io.EOF)
				time.Sleep(time.Second)
			}
		}
		fail()
		for text, want := range map[string]int{"peer=b:1": 1, "peer=c:1": 1, "appendEntries": 1, "index=7 error=EOF": 1} {
			if got := strings.Count(log.String(), text); got != want {
				t.Errorf("%s: %d lines, want %d", text, got, want)
			}
		}
		time.Sleep(repeats.Every)
		fail()
		if got := strings.Count(log.String(), "peer=b:1"); got != 2 {
			t.Errorf("%d lines after a minute, want 2", got)
		}
	})
}

// A node that is alone of three asks for votes several times a second, for as long as that lasts.
func TestLog_saysOnceAMinuteThatThereIsNoMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := newCluster(t, 3, func(cfg *Config) {
			if cfg.NodeID == "n1" {
				cfg.Logger = log.logger()
			}
		})
		c.open("n1", "n2", "n3")
		c.leader()
		c.close("n2", "n3")
		time.Sleep(time.Minute)
		before := strings.Count(log.String(), "\n")
		time.Sleep(10 * time.Minute)
		if n := strings.Count(log.String(), "\n") - before; n > 200 {
			t.Errorf("%d lines in ten minutes:\n%.4000s", n, log.String())
		}
	})
}

// A disk that is full for long is tried each second. And raft has a word for each flush.
func TestFlush_thatFailsIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		var full atomic.Bool
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Logger, cfg.FlushInterval = log.logger(), time.Minute
			cfg.FreeSpace = func(string) (uint64, error) {
				if full.Load() {
					return 0, nil
				}
				return math.MaxUint64, nil
			}
		})
		c.open("n1")
		n := c.leader()
		must(t, n, startLoad(t, n).batch(20, 1000))
		full.Store(true)
		time.Sleep(100 * time.Second)
		if got := strings.Count(log.String(), "not flushed"); got != 2 {
			t.Errorf("%d lines in a minute and a half without room, want 2", got)
		}
		full.Store(false)
		c.eventually("flush", func() bool { return n.store.ManifestMeta().Index > 0 })
		if text := log.String(); strings.Contains(text, "to take snapshot") || strings.Contains(text, "snapshot up to") {
			t.Errorf("raft tells of flushes:\n%s", log.String())
		}
	})
}

func TestReplaced_refusalsDoNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := newCluster(t, 3, func(cfg *Config) { cfg.Logger = log.logger() })
		c.open("n1", "n2", "n3")
		node := c.leader().cfg.NodeID
		for range 20 {
			c.greetAs(raft.ServerID(node+"@9999"), node)
			c.greetAs("stranger", node)
			synctest.Wait()
		}
		text := log.String()
		if got := strings.Count(text, "raft connection refused"); got != 2 || strings.Contains(text, "failed to decode") {
			t.Errorf("%d refusals logged, want one for each id:\n%s", got, text)
		}
		time.Sleep(repeats.Every)
		c.greetAs("stranger", node)
		if got := strings.Count(log.String(), "raft connection refused"); got != 3 {
			t.Errorf("%d refusals logged after a minute, want 3", got)
		}
	})
}

// A host that resets, hangs up or sends something else does it from another port
// each time, which the error of the read names.
func TestStreams_sayOnceAMinuteWhyAHostIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		s := newStreams(nil, streamConfig{cluster: "a", raftID: func() raft.ServerID { return "n1" }, log: log.logger()})
		for port := range 10 {
			from := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 40_000 + port}
			s.logRefused(from, &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 7301}, Addr: from, Err: os.NewSyscallError("read", syscall.ECONNRESET)})
			s.logRefused(from, &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 7301}, Addr: from, Err: os.ErrDeadlineExceeded})
			s.logRefused(from, s.checkGreeting(strings.NewReader(fmt.Sprintf("GET %d", port))))
			s.logRefused(from, io.EOF)
			time.Sleep(time.Second)
		}
		text := log.String()
		if got := strings.Count(text, "raft connection refused"); got != 4 {
			t.Errorf("%d lines, want one for each of 4 causes:\n%s", got, text)
		}
	})
}
