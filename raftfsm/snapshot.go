package raftfsm

import (
	"errors"
	"fmt"
	"io"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// Snapshots are raft's. One is a marker: the index of the manifest. What raft would
// write to a snapshot file, the store has written as a segment; what raft sends to a
// follower, the store streams from its segments. So Create makes a sink that
// either flushes (local snapshot) or receives (InstallSnapshot), List reports
// what the manifest holds, and Open streams it, whatever id is asked for: the
// manifest only knows one moment.
type Snapshots struct {
	Store  *storage.Store
	Retain func(before, end uint64) // told before raft cuts the log: up to where the last flush but one and the last have saved it
	Fail   func(error)              // told why this node cannot go on
	// Received is told how the last snapshot from a leader ended, nil: well.
	Received func(error)
	Refuse   func() // has what is still to come of the stream not come
}

// Create returns a sink that flushes what Persist has frozen, or that receives.
func (s *Snapshots) Create(_ raft.SnapshotVersion, index, term uint64, cfg raft.Configuration, cfgIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	meta := storage.SnapshotMeta{Index: index, Term: term, Configuration: raft.EncodeConfiguration(cfg), ConfigurationIndex: cfgIndex}
	return &sink{Snapshots: s, meta: meta, before: s.Store.ManifestMeta().Index}, nil
}

// List returns the manifest, as the only snapshot.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	meta := s.Store.ManifestMeta()
	if meta.Index == 0 {
		return nil, nil
	}
	return []*raft.SnapshotMeta{raftMeta(meta, 0)}, nil
}

// Open streams the segments of this moment.
func (s *Snapshots) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, size, stream, err := s.Store.OpenStream()
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot: %w", err)
	}
	return raftMeta(meta, size), stream, nil
}

func raftMeta(m storage.SnapshotMeta, size int64) *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: snapshotID(m), Index: m.Index, Term: m.Term,
		Configuration: raft.DecodeConfiguration(m.Configuration), ConfigurationIndex: m.ConfigurationIndex, Size: size,
	}
}

func snapshotID(m storage.SnapshotMeta) string { return fmt.Sprintf("%d-%d", m.Term, m.Index) }

// marker is what Snapshot hands to Persist.
type marker struct {
	schedule schedule
	fsm      *FSM
}

// A schedule is what storage has frozen.
type schedule interface {
	Flush(storage.SnapshotMeta) error
	Release()
}

// Persist returns after the segment and the manifest are on disk: raft cuts the
// log next. A store that cannot say what is on disk, or cannot read what it has
// just written, will not be better at the next attempt.
func (m *marker) Persist(s raft.SnapshotSink) error {
	m.fsm.backlog.begin()
	err := m.schedule.Flush(s.(*sink).meta)
	m.fsm.backlog.end(err)
	if errors.Is(err, storage.ErrFailed) || errors.Is(err, storage.ErrCorrupt) {
		m.fsm.cfg.Fail(fmt.Errorf("write the schedule: %w", err))
	}
	return err
}

// Release gives back what was not flushed, nothing after Persist has succeeded.
func (m *marker) Release() {
	m.schedule.Release()
	m.fsm.backlog.release()
}

// A sink carries the meta of a local snapshot to Persist, or receives a stream.
type sink struct {
	*Snapshots
	meta     storage.SnapshotMeta
	before   uint64            // where the manifest ended when the sink was made
	receiver *storage.Receiver // set by the first Write
}

func (s *sink) ID() string { return snapshotID(s.meta) }

func (s *sink) Write(b []byte) (int, error) {
	if s.receiver == nil {
		r, err := s.Store.Receive(s.meta)
		if err != nil {
			s.Refuse()
			return 0, fmt.Errorf("receive snapshot: %w", err)
		}
		s.receiver = r
	}
	written, err := s.receiver.Write(b)
	if err != nil {
		s.Received(err)
		s.Refuse()
	}
	s.failOnVersion(err)
	return written, err
}

// failOnVersion stops the node where it does not understand what is sent: the leader would send it again and again, and this
// node stay behind for ever.
func (s *sink) failOnVersion(err error) {
	if errors.Is(err, storage.ErrVersion) {
		s.Fail(fmt.Errorf("receive snapshot: %w: this node must not go on; run the version of the other nodes", err))
	}
}

// Close names what was received in the manifest. After Persist it says how much
// log is to stay.
func (s *sink) Close() error {
	if s.receiver == nil {
		s.Retain(s.before, s.meta.Index)
		return nil
	}
	r := s.receiver
	s.receiver = nil
	if err := r.Commit(); err != nil {
		r.Abort()
		err = fmt.Errorf("commit received snapshot: %w", err)
		s.Received(err)
		if errors.Is(err, storage.ErrFailed) {
			s.Fail(err)
		}
		s.failOnVersion(err)
		return err
	}
	s.Received(nil)
	return nil
}

func (s *sink) Cancel() error {
	if s.receiver == nil {
		return nil
	}
	r := s.receiver
	s.receiver = nil
	r.Abort()
	return nil
}
