package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// Room returns nil, or why no message may be accepted now, wrapping raftfsm.ErrNoRoom:
// the disk is down to the reserve, the log or a flush could not be written, or
// flushing is too far behind. It is asked before an Ingest is proposed; acks and
// claims need little and go on, out of the reserve. It becomes nil again by
// itself. Cheap enough for every proposal.
func (n *Node) Room() error {
	if err := n.logs.Failure(); err != nil {
		return fmt.Errorf("%w: writing the log to node.data_dir %s failed: %w", raftfsm.ErrNoRoom, n.cfg.DataDir, err)
	}
	if err := n.fsm.Backlog().Failure(); err != nil {
		return fmt.Errorf("%w: writing the schedule to node.data_dir %s failed: %w", raftfsm.ErrNoRoom, n.cfg.DataDir, err)
	}
	if unsaved, tooMany := n.fsm.Backlog().Unsaved(); tooMany {
		return fmt.Errorf("%w: %d MiB of accepted messages wait for the disk", raftfsm.ErrNoRoom, unsaved>>20)
	}
	free, err := n.store.FreeSpace()
	if err != nil {
		return fmt.Errorf("%w: asking for free space of node.data_dir %s: %w", raftfsm.ErrNoRoom, n.cfg.DataDir, err)
	}
	if reserve := n.reserve(); free < reserve {
		return fmt.Errorf("%w: node.data_dir %s has %d MiB free, %d MiB are kept in reserve: free some space", raftfsm.ErrNoRoom, n.cfg.DataDir, free>>20, reserve>>20)
	}
	return nil
}

// noteReceived keeps why a snapshot from a leader was not received, nil that one
// was or that none is needed. The leader sends it again and again.
func (n *Node) noteReceived(err error) {
	if errors.Is(err, storage.ErrDiskFull) {
		err = n.cfg.Advise(fmt.Errorf("%w: %w", ErrNoRoomToReceive, err))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.receiving = err
}

// isShort reports whether the disk is down to the reserve.
func (n *Node) isShort() bool {
	free, err := n.store.FreeSpace()
	return err == nil && free < n.reserve()
}

// reserve is what two flushes and the log between them can take.
func (n *Node) reserve() uint64 {
	return 2*uint64(n.cfg.FlushBytes) + 2*uint64(max(int64(n.cfg.SegmentSize), n.cfg.FlushBytes))
}

// slowFollowerFlushes is for how many times FlushBytes the log is kept for a follower
// that answers but is behind; then it gets a snapshot.
const slowFollowerFlushes = 8

// sendPatience is how long a follower may be silent while it receives a snapshot
// or catches up after one, before the log is cut without regard to it; and how long a
// leader may be silent in the middle of one.
const sendPatience = 10 * time.Second

// catchUpPatience is how long a follower may take nothing after a snapshot before it
// counts as any other that is behind: its log may take nothing more. Raft tries again
// after ten seconds at most.
const catchUpPatience = time.Minute

// A retention is up to where the log may be cut: a flush that much log has followed, so that a follower which was
// away for less catches up from the log alone. Flushes for the dead follow one another after seconds, and leave next to none
// between them. It begins with the first flush of a node's life; see Node.resume.
type retention struct {
	kept, next flushEnd
	resumed    bool
}

// A flushEnd is where a flush ended.
type flushEnd struct {
	index uint64
	bytes int64 // of log that this flush and those before have saved since the start
}

// flushed moves on with a flush that ended now. At least enough bytes of log stay then, if that many came; where
// all flushes are of that size it is the log since the flush before. At most twice as many stay, and what one flush saves.
func (k *retention) flushed(now flushEnd, enough int64) {
	if now.bytes-k.next.bytes >= enough {
		k.kept, k.next = k.next, now
	}
}

// entries returns how many entries so many bytes of log are, to judge by those from the mark to a flush that ended now.
func (k *retention) entries(bytes int64, now flushEnd) uint64 {
	return uint64(float64(bytes) * float64(now.index-min(k.kept.index, now.index)) / float64(max(now.bytes-k.kept.bytes, 1)))
}

// resume goes on where the log begins that FlushBytes of it lead to the flush before, which an earlier life may have written.
// It reads these.
func (n *Node) resume(before uint64) retention {
	first, err := n.logs.FirstIndex()
	at := flushEnd{index: before}
	for ; err == nil && first > 0 && at.index >= first && -at.bytes < n.cfg.FlushBytes; at.index-- {
		var l raft.Log
		if err = n.logs.GetLog(at.index, &l); err != nil {
			break
		}
		at.bytes -= int64(raftfsm.LogBytes(&l))
	}
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) { // a log that a snapshot has replaced ends before it
		n.log.Error("log not read, less of it is kept", "error", err)
	}
	return retention{kept: at, next: at, resumed: true}
}

// retain tells raft how much log stays behind the flush that has just been
// written, from before to end, before it cuts. Raft counts that in entries, which may be 50 bytes or
// 500 KB; here it is bytes, or the log since the flush before where the disk is short. Raft counts from the end that the
// log has when it cuts, a little later; so the log store is told the exact index. A request begins with the term of the
// entry before it, so one entry more is kept. Only raft's goroutine that takes snapshots calls it.
func (n *Node) retain(before, end uint64) {
	if !n.retention.resumed {
		n.retention = n.resume(before)
	}
	spacious := n.spacious()
	enough := n.cfg.FlushBytes
	if !spacious {
		enough = 0
	}
	now := flushEnd{end, n.fsm.Backlog().Saved()}
	n.retention.flushed(now, enough)
	r := n.running()
	last := r.LastIndex()
	kept := n.retention.kept.index
	from := kept
	if r.State() == raft.Leader {
		most := n.retention.entries(slowFollowerFlushes*n.cfg.FlushBytes, now)
		for _, s := range servers(r) {
			if s.ID == n.raftID() {
				continue
			}
			from = min(from, n.transport.peer(s.ID).needs(last, kept, most, n.patience(), spacious))
			n.transport.reached(s.ID, kept)
		}
	}
	from -= min(from, 1)
	n.logs.KeepAfter(from)
	if err := n.reload(r, func(c *raft.ReloadableConfig) { c.TrailingLogs = last - min(from, last) }); err != nil {
		n.log.Error("retention not set", "error", err)
	}
}

// needs returns the index after which the log is kept for p, of which most entries are kept at most. One that receives a
// snapshot needs everything after it, however long that takes, or the next
// snapshot would follow without end; so the log is kept while the disk has room and
// it gets on.
func (p peer) needs(last, kept, most uint64, patience time.Duration, spacious bool) uint64 {
	switch {
	case p.snapshot > 0 && spacious && p.recent(sendPatience) && p.moves(catchUpPatience):
		return max(p.lastIndex, p.snapshot)
	case p.recent(patience):
		return max(p.lastIndex, last-min(most, last))
	default:
		return kept
	}
}

// spacious reports whether the disk is so far from its reserve that log may be
// kept beyond the usual: otherwise Room would refuse messages for its sake.
func (n *Node) spacious() bool {
	free, err := n.store.FreeSpace()
	return err == nil && free >= 2*n.reserve()
}
