package raftfsm

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A countedLog counts what is read of it.
type countedLog struct {
	raft.LogStore
	reads int
}

func (l *countedLog) GetLog(index uint64, e *raft.Log) error {
	l.reads++
	return l.LogStore.GetLog(index, e)
}

func openTestLeanLog(t *testing.T) (*leanLog, *countedLog) {
	t.Helper()
	s, err := openLog(t.TempDir(), Config{Log: LogWAL, SegmentSize: 64 << 10, Logger: testLogger(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	counted := &countedLog{LogStore: s.LogStore}
	s.LogStore = counted
	return newLeanLog(s), counted
}

func TestLeanLog_givesRaftCommandsWithoutTheirData(t *testing.T) {
	l, counted := openTestLeanLog(t)
	first := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")}
	if err := l.StoreLog(first); err != nil {
		t.Fatal(err)
	}
	const last, size = 50, 300 << 10
	for i := uint64(2); i <= last; i++ {
		if err := l.StoreLog(entry(i, size)); err != nil {
			t.Fatal(err)
		}
	}
	if l.bytes > newestBytes || l.bytes < newestBytes/2 {
		t.Errorf("%d bytes of the newest entries in memory, want up to %d", l.bytes, newestBytes)
	}
	again := newLeanLog(l.logStore) // after a restart
	for _, log := range []*leanLog{l, again} {
		for range 2 {
			for i := uint64(1); i <= last; i++ {
				var e raft.Log
				if err := log.GetLog(i, &e); err != nil || e.Index != i || e.Term != 1 || isLean(&e) != (i > 1) || i == 1 && string(e.Data) != "members" {
					t.Fatalf("entry %d: %+v, %v", i, e, err)
				}
			}
		}
		for i := uint64(2); i <= last; i++ {
			if e, err := log.read(i, 1); err != nil || !bytes.Equal(e.Data, entry(i, size).Data) {
				t.Fatalf("read entry %d: %v", i, err)
			}
		}
	}
	// The configuration each time; the rest once by the second, to know it, and
	// once by each when its data were wanted and not in memory.
	if most := 4 + (last - 1) + 2*(last-1); counted.reads > most {
		t.Errorf("%d entries read from the log, want at most %d", counted.reads, most)
	}
}

// Raft sends a snapshot when it does not find an entry.
func TestLeanLog_forgetsWhatIsCut(t *testing.T) {
	l, _ := openTestLeanLog(t)
	for i := range uint64(20) {
		if err := l.StoreLog(entry(i+1, 100)); err != nil {
			t.Fatal(err)
		}
	}
	l.keepAfter(20)
	if err := l.DeleteRange(1, 5); err != nil {
		t.Fatal(err)
	}
	if err := l.DeleteRange(15, 20); err != nil {
		t.Fatal(err)
	}
	for index, want := range map[uint64]error{5: raft.ErrLogNotFound, 6: nil, 14: nil, 15: raft.ErrLogNotFound} {
		if err := l.GetLog(index, new(raft.Log)); !errors.Is(err, want) {
			t.Errorf("entry %d: %v, want %v", index, err, want)
		}
	}
	other := entry(15, 100)
	other.Term = 2
	if err := l.StoreLog(other); err != nil {
		t.Fatal(err)
	}
	if _, err := l.read(15, 1); err == nil {
		t.Error("read an entry of another term")
	}
	if e, err := l.read(15, 2); err != nil || e.Term != 2 {
		t.Errorf("read %+v, %v", e, err)
	}
}

func TestTransport_sendsABoundedNumberOfBytes(t *testing.T) {
	for _, tt := range []struct {
		name        string
		size, count int
		want        int
	}{
		{"small ones", 100, 64, 64},
		{"up to the bound", requestBytes / 4, 64, 4},
		{"one that is larger", 16 << 20, 16, 1},
	} {
		reads := 0
		tr := &transport{transportConfig: transportConfig{read: func(index, term uint64) (*raft.Log, error) {
			reads++
			return &raft.Log{Index: index, Term: term, Data: make([]byte, tt.size)}, nil
		}}}
		var req raft.AppendEntriesRequest
		for i := range tt.count {
			req.Entries = append(req.Entries, &raft.Log{Index: uint64(i) + 1, Term: 1})
		}
		if err := tr.load(&req); err != nil || len(req.Entries) != tt.want || reads > tt.want+1 {
			t.Errorf("%s: %d sent, %d read, %v, want %d", tt.name, len(req.Entries), reads, err, tt.want)
		}
	}
}

// A slowConn takes so many bytes a second.
type slowConn struct {
	net.Conn
	perSecond int
}

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(c.perSecond))
	return c.Conn.Write(b)
}

// 8 Mbit/s carry a record of 16 MiB in 17 s, and others wait behind it.
func TestCluster_catchesUpWithLargeCommandsOnASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			dial := cfg.Dial
			cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return slowConn{conn, 1 << 20}, nil
			}
			cfg.FlushBytes, cfg.SegmentSize = 64<<20, 1<<20
		})
		c.open("n1", "n2", "n3")
		n := c.leader()
		l := startLoad(t, n)
		away := otherThan(c, n)
		c.close(away)
		must(t, n, l.batch(1, 16<<20))
		for range 4 {
			must(t, n, l.batch(1, 2<<20))
		}
		if c.leader() != n {
			t.Error("leadership changed hands")
		}
		c.open(away)
		time.Sleep(time.Minute)
		c.agree()
	})
}
