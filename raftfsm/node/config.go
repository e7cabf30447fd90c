package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft-wal/types"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/raftlog"
	"github.com/carillonmq/carillon/storage"
)

const (
	defaultHeartbeat     = 300 * time.Millisecond
	defaultFlushBytes    = 32 << 20
	defaultFlushInterval = 5 * time.Minute
	defaultSegmentSize   = 64 << 20
)

// Config is what a Node is opened with.
type Config struct {
	NodeID      string // one of Members
	DataDir     string // created when missing; belongs to this node alone
	ClusterName string
	Members     []member.Member // identical on all nodes
	Bootstrap   bool            // these members may found a new cluster

	Heartbeat  time.Duration // heartbeat and election timeout, 300 ms by default; the lease is nine tenths of it
	Log        string        // raftlog.WAL (default) or raftlog.BoltDB
	ListenAddr string        // where Raft listens; this node's Member.Raft by default

	// Listen and Dial replace TCP when set.
	Listen func(network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)

	// AskMember asks another member over its API for its Standing. It is called
	// while this node is unborn, once at each start after that, and when it must be
	// known which feature level all understand. It may be nil in a one-node cluster.
	AskMember func(ctx context.Context, m member.Member) (member.Standing, error)

	// Advise adds to an error what the node's users are to do about it, before it is
	// logged, told or returned; nil: nothing. Package member, ErrNoRoomToReceive and
	// raftfsm.ErrDamaged name what needs more than is known here.
	Advise func(error) error

	FlushBytes    int64         // bytes of log after which the memtable is flushed; 32 MiB by default
	FlushInterval time.Duration // flushed after this long even if little was written; 5 min by default
	SegmentSize   int           // bytes of one log file of raftlog.WAL; 64 MiB by default
	MergeWidth    int           // of the schedule's segments: storage.Config; 0: its default

	// LogFiles are those of the log's segments, and FreeSpace tells how much room there is on the
	// disk of a directory. nil: the file system's.
	LogFiles  types.VFS
	FreeSpace func(dir string) (uint64, error)

	// FreeMemory returns what is garbage to the system, some seconds after a flush. nil: debug.FreeOSMemory.
	FreeMemory func()

	// Understands is the newest feature level that this node goes by; by default
	// storage.NewestLevel. Lower: as a program of that level would.
	Understands storage.Level

	// Applied is told of each command that was applied here, before anybody else is, and
	// what follows waits until it returns. It must not keep the operations of an Ingest. nil: nobody is told.
	Applied func(raftfsm.Command, raftfsm.Result)

	Logger *slog.Logger // required
}

// withDefaults returns c, checked and completed.
func (c Config) withDefaults() (Config, error) {
	bad := func(field string, value any, remedy string) (Config, error) {
		return Config{}, fmt.Errorf("%w: %s: %v: %s", member.ErrConfig, field, value, remedy)
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.FlushBytes == 0 {
		c.FlushBytes = defaultFlushBytes
	}
	if c.FlushInterval == 0 {
		c.FlushInterval = defaultFlushInterval
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = defaultSegmentSize
	}
	if c.Understands == 0 {
		c.Understands = storage.NewestLevel
	}
	if c.Log == "" {
		c.Log = raftlog.WAL
	}
	if c.Listen == nil {
		c.Listen = net.Listen
	}
	if c.Advise == nil {
		c.Advise = func(err error) error { return err }
	}
	if c.FreeMemory == nil {
		c.FreeMemory = debug.FreeOSMemory
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	group, err := c.member().Check()
	if err != nil {
		return Config{}, err
	}
	c.Members = group.Members
	switch {
	case c.Log != raftlog.WAL && c.Log != raftlog.BoltDB:
		return bad("raft.log", fmt.Sprintf("%q", c.Log), "use wal or boltdb")
	case c.Heartbeat < 20*time.Millisecond:
		return bad("raft.heartbeat", c.Heartbeat, "use at least 20ms")
	case c.Understands > storage.NewestLevel:
		return bad("Understands", c.Understands, fmt.Sprintf("this program understands %d", storage.NewestLevel))
	case c.FlushInterval < 0:
		return bad("FlushInterval", c.FlushInterval, "give a duration above 0")
	case c.FlushBytes < 0:
		return bad("FlushBytes", c.FlushBytes, "give a number above 0")
	case c.SegmentSize < 0:
		return bad("SegmentSize", c.SegmentSize, "give a number above 0")
	case c.AskMember == nil && len(c.Members) > 1:
		return bad("AskMember", "nil", "a cluster of several members needs it")
	}
	if c.ListenAddr == "" {
		me, _ := group.Member(c.NodeID)
		c.ListenAddr = me.Raft
	}
	return c, nil
}

// member is what the configuration says of this node's place among the members, and
// of its directory.
func (c Config) member() member.Config {
	return member.Config{
		NodeID: c.NodeID, ClusterName: c.ClusterName, Members: c.Members, Bootstrap: c.Bootstrap,
		DataDir: c.DataDir, Log: c.Log, Parts: []string{raftDir, scheduleDir},
		Needed: []string{filepath.Join(raftDir, raftlog.StableFile), filepath.Join(raftDir, c.Log, raftlog.File(c.Log))},
	}
}
