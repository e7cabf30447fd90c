package raftfsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// The leader would send the snapshot again and again.
func TestSink_stopsTheNodeWhenTheStreamIsOfANewerProgram(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	var failure error
	shots := &Snapshots{Store: s, Fail: func(err error) { failure = err }, Received: func(error) {}, Refuse: func() {}}
	k, err := shots.Create(1, 7, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	record := []byte{99, 'x'}
	record = binary.BigEndian.AppendUint32(record, crc32.Checksum(record, crc32.MakeTable(crc32.Castagnoli)))
	stream := binary.BigEndian.AppendUint32([]byte("carillon"), uint32(len(record)))
	_, err = k.Write(append(stream, record...))
	if !errors.Is(err, storage.ErrVersion) || !errors.Is(failure, storage.ErrVersion) || !strings.Contains(failure.Error(), "stream header has version 99") {
		t.Errorf("written with %v, stopped with %v", err, failure)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
}

// A cluster that was raised to a level to come, in which the state has the form of today: it says so in the header, before all that
// follows.
func TestSink_stopsTheNodeWhenTheStreamIsOfALevelToCome(t *testing.T) {
	from := openStore(t, t.TempDir())
	defer from.Close()
	from.RaiseLevel(storage.NewestLevel)
	from.Applied(7)
	if err := from.Freeze().Flush(storage.SnapshotMeta{Index: 7, Term: 1}); err != nil {
		t.Fatal(err)
	}
	_, _, rc, err := from.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	stream, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	length := binary.BigEndian.Uint32(stream[8:])
	record := stream[12 : 12+length]
	at := 1 + 4 + 1 // version; index, term, no configuration, its index; version of the state; and its length
	_, n := binary.Uvarint(record[at:])
	if level := &record[at+n]; *level != byte(storage.NewestLevel) {
		t.Fatalf("no level in % x", record[:20])
	} else {
		*level++
	}
	binary.BigEndian.PutUint32(record[length-4:], crc32.Checksum(record[:length-4], crc32.MakeTable(crc32.Castagnoli)))

	to := openStore(t, t.TempDir())
	defer to.Close()
	var failure error
	shots := &Snapshots{Store: to, Fail: func(err error) { failure = err }, Received: func(error) {}, Refuse: func() {}}
	k, err := shots.Create(1, 7, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write(stream[:12+length]); !errors.Is(err, storage.ErrVersion) || !errors.Is(failure, storage.ErrVersion) {
		t.Errorf("written with %v, stopped with %v", err, failure)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
}

// Raft would delete the log and go on counting from its old end, or ask for an agreement with the term that it had.
func TestRestore_refusesASnapshotBesideAnotherEndOfTheLog(t *testing.T) {
	for _, test := range []struct {
		index, term uint64 // of the log's end; the snapshot has 7 of term 4
		stops       bool
	}{{0, 0, false}, {6, 3, false}, {7, 4, false}, {7, 3, true}, {8, 3, true}, {8, 4, true}} {
		var failure error
		s := openStore(t, t.TempDir())
		cfg := fsmConfig(1<<20, func(err error) { failure = err })
		cfg.LastLog = func() (index, term uint64, err error) { return test.index, test.term, nil }
		f := NewFSM(s, cfg)
		frozen := s.Freeze()
		if err := frozen.Flush(storage.SnapshotMeta{Index: 7, Term: 4}); err != nil {
			t.Fatal(err)
		}
		frozen.Release()
		err := f.Restore(io.NopCloser(strings.NewReader("")))
		if stopped := err != nil && failure != nil && strings.HasSuffix(failure.Error(), "start the node again"); stopped != test.stops || err != nil && !test.stops {
			t.Errorf("%+v: restored: %v, failed with %v", test, err, failure)
		}
		s.Close()
	}
}

// The sink that raft cancels leaves nothing behind.
func TestSink_cancelledLeavesTheManifestAlone(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	shots := &Snapshots{Store: s, Received: func(error) {}, Refuse: func() {}}
	k, err := shots.Create(1, 7, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := k.Cancel(); err != nil {
		t.Error(err)
	}
	if list, err := shots.List(); err != nil || len(list) != 0 {
		t.Errorf("list %v, %v", list, err)
	}
}

type brokenSchedule struct{ err error }

func (b brokenSchedule) Flush(storage.SnapshotMeta) error { return b.err }

func (b brokenSchedule) Release() {}

func TestPersist_stopsTheNodeWhenTryingAgainIsOfNoUse(t *testing.T) {
	for _, tt := range []struct {
		err   error
		stops bool
	}{{storage.ErrFailed, true}, {storage.ErrCorrupt, true}, {storage.ErrDiskFull, false}, {storage.ErrGeneration, false}} {
		var failure error
		f := &FSM{backlog: newBacklog(100), cfg: FSMConfig{Fail: func(err error) { failure = err }}}
		m := &marker{schedule: brokenSchedule{fmt.Errorf("flush: %w", tt.err)}, fsm: f}
		if err := m.Persist(&sink{}); !errors.Is(err, tt.err) || errors.Is(failure, tt.err) != tt.stops {
			t.Errorf("%v: persisted with %v, stopped with %v", tt.err, err, failure)
		}
	}
}

// Raft cuts from the end that the log has after the flush.
func TestSink_reckonsTheLogToKeepAfterTheFlush(t *testing.T) {
	f := newTestFSM(t)
	var told []uint64
	var saved []int64
	shots := &Snapshots{Store: f.store, Retain: func(before, end uint64) {
		told, saved = append(told, end), append(saved, f.Backlog().Saved())
	}}
	for i, want := range []uint64{1, 2} {
		knownPosition(t, f, 0)
		m, err := f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		k, err := shots.Create(raft.SnapshotVersionMax, f.applied, 1, raft.Configuration{}, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		unsaved, _ := f.Backlog().Unsaved()
		if err := m.Persist(k); err != nil || len(told) != i {
			t.Fatalf("%v, told %v before the flush was done", err, told)
		}
		if err := k.Close(); err != nil || len(told) != i+1 || told[i] != want || saved[i] != int64(want)*unsaved {
			t.Errorf("%v, told %v with %v bytes saved, want %d last, with %d times %d", err, told, saved, want, want, unsaved)
		}
		m.Release()
	}
}
