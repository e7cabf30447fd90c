package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
)

// A level is replicated state: it survives a flush and a restart, goes into
// streams, and never falls.
func TestLevel_isKeptAndOnlyRaised(t *testing.T) {
	s := openStore(t, t.TempDir())
	if got := s.Level(); got != LevelOne {
		t.Fatalf("a new store has level %d", got)
	}
	before := digest(t, s)
	s.RaiseLevel(LevelTwo)
	if digest(t, s) == before {
		t.Error("the digest does not tell levels apart")
	}
	s.RaiseLevel(LevelOne)
	s.Applied(1)
	flush(t, s, 1)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	to := openStore(t, t.TempDir())
	if err := transfer(s, to); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]*Store{"reloaded": s, "received": to} {
		if store.Level() != LevelTwo || store.State().Level != LevelTwo {
			t.Errorf("%s: level %d, in the state %d, want %d", name, store.Level(), store.State().Level, LevelTwo)
		}
	}
}

// Before the raise is flushed, the disk and streams have the forms of the level
// before, for their state is of then: a restart finds them all of one level.
func TestLevel_isThatOfTheStateWritten(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.Applied(1)
	frozen := s.Freeze()
	s.RaiseLevel(LevelTwo)
	s.Applied(2)
	if err := frozen.Flush(SnapshotMeta{Index: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	if got := streamVersion(t, s); got != 1 {
		t.Errorf("stream of version %d before the raise is flushed", got)
	}
	flush(t, s, 2)
	if got := streamVersion(t, s); got != 2 {
		t.Errorf("stream of version %d after the raise was flushed", got)
	}
}

func streamVersion(t *testing.T, s *Store) byte {
	t.Helper()
	_, _, rc, err := s.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	head := make([]byte, streamPrefix+1)
	if _, err := io.ReadFull(rc, head); err != nil {
		t.Fatal(err)
	}
	return head[streamPrefix]
}

// A program of today must not go on with what a later one has raised or written.
func TestLevel_refusesWhatIsNewer(t *testing.T) {
	v := newValues()
	v.level = NewestLevel + 1
	if _, err := decodeValues(encodeValues(&v)); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "run the program of the other nodes") {
		t.Errorf("state of a later level: %v", err)
	}
	for name, newest := range map[string]byte{"head": newestHead, "state": newestState, "alive-set": newestAlive} {
		for _, version := range []byte{0, newest + 1} {
			_, err := codec.Open(name, newest, codec.Seal(codec.Record{Version: version}))
			if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s of version %d: %v", name, version, err)
			}
		}
	}
}

// A part of a stream may be newer than its header.
func TestLevel_refusesNewerPartsOfAStream(t *testing.T) {
	c := goldenContents()
	for name, h := range map[string]streamHeader{
		"state":     {meta: c.meta, state: codec.Record{Version: newestState + 1, Payload: nil}, alive: codec.Record{Version: 1, Payload: nil}},
		"alive-set": {meta: c.meta, state: c.state, alive: codec.Record{Version: newestAlive + 1, Payload: nil}},
	} {
		sealed := h.encode(LevelTwo)[streamPrefix:]
		if _, err := decodeStreamHeader(sealed); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := streamHeader{meta: c.meta, state: c.state, alive: codec.Record{Version: 1, Payload: nil}}
	later := bytes.Clone(h.encode(LevelTwo)[streamPrefix:])
	later[0] = newestStreamHeader + 1
	binary.BigEndian.PutUint32(later[len(later)-4:], codec.Checksum(later[:len(later)-4]))
	if _, err := decodeStreamHeader(later); !errors.Is(err, ErrVersion) {
		t.Errorf("a later header: %v", err)
	}
}
