package raftlog

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// newestBytes of entries are kept in memory at most, so that they need not be read back
	// for each follower and for Apply. As many may be in flight: the log of a leader
	// holds no more that is not committed.
	newestBytes = 8 << 20
	// startBytes of what a start has read stay in memory until it is applied: the log
	// of a flush by default.
	startBytes = 32 << 20
	// knownHeads is of how many entries it is known what they are without reading
	// them: raft reads ahead of what it can send or apply.
	knownHeads = 4096
	// entryOverhead is what an entry costs in memory beside its data.
	entryOverhead = 200
)

// A Lean is the log as raft sees it: commands without their data. Raft counts
// entries where it keeps any: 128 batches of them wait for the FSM, and as many as a
// request may have are read for it. With data, of 50 bytes to 48 MiB, that is
// bounded by nothing. So the data are read when they are applied (raftfsm.FSM) or sent
// (transport), by index and term, a bounded number of bytes at a time.
//
// At a start raft reads all that is to be applied, for changes of members, before it
// asks for it to be applied. What it reads then is kept, so that it is read once: twice
// made garbage of several times the log, in a heap that was small as yet, and the
// collector ran sixty times before a node with a million pending led.
type Lean struct {
	*Store

	mu     sync.RWMutex
	newest []*raft.Log // whole; without gap, ascending
	bytes  int         // of newest
	heads  []head      // by index % knownHeads
	cuts   int         // how often a cut began or ended

	serves     bool        // an entry was stored or applied: the start is over
	ahead      []*raft.Log // whole, read by the start and not applied; without gap, ascending
	aheadBytes int         // of ahead
}

type head struct {
	index, term uint64
	kind        raft.LogType
}

// NewLean returns s as raft sees it.
func NewLean(s *Store) *Lean {
	return &Lean{Store: s, heads: make([]head, knownHeads)}
}

// isLean reports whether the data of l are still to be read: a command has some.
func isLean(l *raft.Log) bool { return l.Type == raft.LogCommand && len(l.Data) == 0 }

// GetLog gives a command without its data. An entry that was cut is not known by its head, whatever is kept of it. Of the
// one with which the schedule on disk ends, the term is known without it: a leader has to be told whether it agrees.
func (s *Lean) GetLog(index uint64, l *raft.Log) error {
	s.mu.RLock()
	h, cuts := s.heads[index%knownHeads], s.cuts
	if e := at(s.ahead, index); e != nil && e.Type == raft.LogCommand {
		h = head{index: index, term: e.Term, kind: e.Type}
	}
	e := at(s.newest, index)
	s.mu.RUnlock()
	if h.index == index && h.kind == raft.LogCommand {
		*l = raft.Log{Index: index, Term: h.term, Type: h.kind}
		return nil
	}
	if h.index == index && e != nil { // each request begins with the entry before it
		*l = *e
		return nil
	}
	if err := s.Store.GetLog(index, l); err != nil {
		if saved, term := s.saved(); index == saved && errors.Is(err, raft.ErrLogNotFound) {
			*l = raft.Log{Index: index, Term: term, Type: raft.LogCommand}
			return nil
		}
		return err
	}
	s.mu.Lock()
	if s.cuts == cuts { // else it may be cut
		s.know(l)
		s.keep(l)
	}
	s.mu.Unlock()
	if l.Type == raft.LogCommand {
		*l = raft.Log{Index: index, Term: l.Term, Type: l.Type}
	}
	return nil
}

// Whole returns l with its data, whatever raft holds of it. The term is checked because
// a node that has lost its leadership may go on sending while its log is overwritten.
func (s *Lean) Whole(l *raft.Log) (*raft.Log, error) {
	if !isLean(l) {
		return l, nil
	}
	whole := s.cached(l.Index)
	if whole == nil {
		whole = new(raft.Log)
		if err := s.Store.GetLog(l.Index, whole); err != nil {
			return nil, fmt.Errorf("read log entry %d: %w", l.Index, err)
		}
	}
	if whole.Term != l.Term {
		return nil, fmt.Errorf("read log entry %d: it is of term %d now, not %d", l.Index, whole.Term, l.Term)
	}
	return whole, nil
}

// Next is Whole for the FSM, which applies one entry after the other, each once. Of what was applied only what
// comes after sent stays in memory: others have all up to there.
func (s *Lean) Next(l *raft.Log, sent uint64) (*raft.Log, error) {
	whole, err := s.Whole(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves = true
	gone := 0
	for gone < len(s.newest)-1 && s.newest[gone].Index <= min(l.Index, sent) { // the last one begins the next request
		gone++
	}
	s.drop(gone)
	for len(s.ahead) > 0 && s.ahead[0].Index <= l.Index {
		s.aheadBytes -= len(s.ahead[0].Data) + entryOverhead
		s.ahead[0] = nil
		s.ahead = s.ahead[1:]
	}
	return whole, err
}

func (s *Lean) cached(index uint64) *raft.Log {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := at(s.newest, index); e != nil {
		return e
	}
	return at(s.ahead, index)
}

// at returns the entry of that index, nil if it is not one of these, which are without
// gap and ascending.
func at(logs []*raft.Log, index uint64) *raft.Log {
	if len(logs) == 0 || index < logs[0].Index || index > logs[len(logs)-1].Index {
		return nil
	}
	return logs[index-logs[0].Index]
}

// StoreLog is StoreLogs of one.
func (s *Lean) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs keeps the newest entries in memory too.
func (s *Lean) StoreLogs(logs []*raft.Log) error {
	if err := s.Store.StoreLogs(logs); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serves = true
	for _, l := range logs {
		s.know(l)
		whole := *l
		s.newest = append(s.newest, &whole)
		s.bytes += len(l.Data) + entryOverhead
	}
	gone, bytes := 0, s.bytes
	for ; bytes > newestBytes; gone++ {
		bytes -= len(s.newest[gone].Data) + entryOverhead
	}
	s.drop(gone)
	return nil
}

// drop forgets the first of the newest. It is called with mu held.
func (s *Lean) drop(count int) {
	for i, l := range s.newest[:count] {
		s.bytes -= len(l.Data) + entryOverhead
		s.newest[i] = nil
	}
	s.newest = s.newest[count:]
}

// DeleteRange forgets what it knows of the log: raft sends a snapshot when it does
// not find an entry, so that it must not find one that is cut.
func (s *Lean) DeleteRange(from, to uint64) error {
	s.forget(to)
	defer s.forget(to)
	return s.Store.DeleteRange(from, to)
}

func (s *Lean) forget(to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts++
	clear(s.heads)
	s.ahead, s.aheadBytes = nil, 0
	if n := len(s.newest); n > 0 && s.newest[n-1].Index <= to { // its end is cut
		s.newest, s.bytes = nil, 0
	}
}

// know is called with mu held.
func (s *Lean) know(l *raft.Log) {
	s.heads[l.Index%knownHeads] = head{index: l.Index, term: l.Term, kind: l.Type}
}

// keep is called with mu held. Raft looks at the last entry before it reads through
// those that are to be applied.
func (s *Lean) keep(l *raft.Log) {
	if s.serves {
		return
	}
	if len(s.ahead) > 0 && l.Index < s.ahead[0].Index {
		s.ahead, s.aheadBytes = nil, 0
	}
	bytes := len(l.Data) + entryOverhead
	if n := len(s.ahead); n > 0 && l.Index != s.ahead[n-1].Index+1 || s.aheadBytes+bytes > startBytes {
		return
	}
	whole := *l
	s.ahead = append(s.ahead, &whole)
	s.aheadBytes += bytes
}
