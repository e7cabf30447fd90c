package raftfsm

import (
	"fmt"
	"io"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// A Raft snapshot is a marker: the index of the manifest. What raft would write
// to a snapshot file, the store has written as a segment; what raft sends to a
// follower, the store streams from its segments. So Create makes a sink that
// either flushes (local snapshot) or receives (InstallSnapshot), List reports
// what the manifest holds, and Open streams it, whatever id is asked for: the
// manifest only knows one moment.
type snapshots struct {
	store     *storage.Store
	retention *retention
}

func (s *snapshots) Create(_ raft.SnapshotVersion, index, term uint64, cfg raft.Configuration, cfgIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	meta := storage.SnapshotMeta{Index: index, Term: term, Configuration: raft.EncodeConfiguration(cfg), ConfigurationIndex: cfgIndex}
	return &sink{store: s.store, meta: meta}, nil
}

func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	meta := s.store.ManifestMeta()
	if meta.Index == 0 {
		return nil, nil
	}
	return []*raft.SnapshotMeta{raftMeta(meta, 0)}, nil
}

func (s *snapshots) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.retention.hold()
	meta, size, stream, err := s.store.OpenStream()
	if err != nil {
		s.retention.release()
		return nil, nil, fmt.Errorf("open snapshot: %w", err)
	}
	return raftMeta(meta, size), &heldStream{ReadCloser: stream, release: s.retention.release}, nil
}

func raftMeta(m storage.SnapshotMeta, size int64) *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: snapshotID(m), Index: m.Index, Term: m.Term,
		Configuration: raft.DecodeConfiguration(m.Configuration), ConfigurationIndex: m.ConfigurationIndex, Size: size,
	}
}

func snapshotID(m storage.SnapshotMeta) string { return fmt.Sprintf("%d-%d", m.Term, m.Index) }

// heldStream keeps the log from being cut under a follower that still receives.
type heldStream struct {
	io.ReadCloser
	release func() // nil once closed
}

func (h *heldStream) Close() error {
	if h.release == nil {
		return nil
	}
	h.release()
	h.release = nil
	return h.ReadCloser.Close()
}

// frozen is what Snapshot hands to Persist.
type frozen struct {
	schedule *storage.Frozen
	fsm      *fsm
	bytes    int64 // of log that it stands for
	flushed  bool
}

// Persist returns after the segment and the manifest are on disk: raft cuts the
// log next.
func (z *frozen) Persist(s raft.SnapshotSink) error {
	err := z.schedule.Flush(s.(*sink).meta)
	z.fsm.flushError.Store(&err)
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	z.flushed = true
	return nil
}

func (z *frozen) Release() {
	if z.flushed {
		return
	}
	z.schedule.Release()
	z.fsm.unsaved.Add(z.bytes)
}

// A sink carries the meta of a local snapshot to Persist, or receives a stream.
type sink struct {
	store    *storage.Store
	meta     storage.SnapshotMeta
	receiver *storage.Receiver // set by the first Write
}

func (s *sink) ID() string { return snapshotID(s.meta) }

func (s *sink) Write(b []byte) (int, error) {
	if s.receiver == nil {
		r, err := s.store.Receive(s.meta)
		if err != nil {
			return 0, fmt.Errorf("receive snapshot: %w", err)
		}
		s.receiver = r
	}
	return s.receiver.Write(b)
}

// Close names what was received in the manifest. After Persist there is nothing
// left to do.
func (s *sink) Close() error {
	if s.receiver == nil {
		return nil
	}
	r := s.receiver
	s.receiver = nil
	if err := r.Commit(); err != nil {
		r.Abort()
		return fmt.Errorf("commit received snapshot: %w", err)
	}
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
