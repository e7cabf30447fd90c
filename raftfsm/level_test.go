package raftfsm

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

func TestRaiseLevel_neverLowersAndChangesNothingTwice(t *testing.T) {
	f := newTestFSM(t)
	apply(t, f, RaiseLevel{Time: 5, Level: storage.LevelOne})
	if got := f.store.Level(); got != storage.LevelOne {
		t.Fatalf("level %d", got)
	}
	before := digest(t, f.store)
	apply(t, f, RaiseLevel{Time: 5, Level: storage.LevelTwo})
	raised := digest(t, f.store)
	apply(t, f, RaiseLevel{Time: 4, Level: storage.LevelTwo})
	apply(t, f, RaiseLevel{Time: 4, Level: storage.LevelOne})
	if got := f.store.Level(); got != storage.LevelTwo {
		t.Errorf("level %d after a raise to %d", got, storage.LevelTwo)
	}
	if before == raised || digest(t, f.store) != raised {
		t.Error("the digest follows something else than the level")
	}
}

// A raise reaches a node that does not understand it only when that was taken back
// to an older program after it had answered.
func TestRaiseLevel_stopsTheNodeThatDoesNotUnderstandIt(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	cfg := fsmConfig(1 << 20)
	cfg.Understands = storage.LevelOne
	var failure error
	f := newFSM(s, emptyLog, cfg, func(err error) { failure = err })
	f.Apply(&raft.Log{Index: 1, Data: RaiseLevel{Level: storage.LevelTwo}.append(nil)})
	if !errors.Is(failure, ErrUnknownCommand) || !strings.Contains(failure.Error(), "feature level to 2, this binary understands 1") {
		t.Errorf("stopped with %v", failure)
	}
	if s.Level() != storage.LevelOne || s.State().AppliedIndex != 0 {
		t.Errorf("level %d, applied to %d", s.Level(), s.State().AppliedIndex)
	}
}

// What programs of 309c7bc refuse, and this one: the form of a later level.
func TestLevelOf_knowsWhatThisBinaryReads(t *testing.T) {
	for _, c := range samples {
		b := c.append(nil)
		if levelOf(b[0], b[1]) == 0 {
			t.Errorf("%T is written in a form that is not read", c)
		}
	}
	for _, form := range [][2]byte{{0, kindAck}, {1, 0}, {1, byte(len(forms))}, {255, 255}} {
		if got := levelOf(form[0], form[1]); got != 0 {
			t.Errorf("version %d of kind %d: level %d", form[0], form[1], got)
		}
	}
}

func TestUnderstood_asksEveryMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		ask := c.ask
		c.tune = func(cfg *Config) {
			if cfg.NodeID == "n2" {
				cfg.Understands = storage.LevelOne
			}
			cfg.AskMember = func(ctx context.Context, m Member) (Standing, error) { return ask(ctx, m) }
		}
		c.open("n1", "n2", "n3")
		n := c.leader()
		want := map[string]storage.Level{"n1": storage.NewestLevel, "n2": storage.LevelOne, "n3": storage.NewestLevel}
		if got, err := n.Understood(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("understood %v, want %v (error %v)", got, want, err)
		}

		away := otherThan(c, n)
		c.close(away)
		delete(want, away)
		if got, err := n.Understood(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("with %s away: understood %v, want %v (error %v)", away, got, want, err)
		}

		ask = func(context.Context, Member) (Standing, error) { return n.Standing(), nil }
		if got, err := n.Understood(t.Context()); err == nil || !strings.Contains(err.Error(), "correct the address") {
			t.Errorf("one node answered for all: understood %v, error %v", got, err)
		}
	})
}

// A program from before there were levels answers without the field, and reads an
// answer that has it.
func TestStanding_withoutTheFieldIsOfTheOldestLevel(t *testing.T) {
	var old Standing
	if err := json.Unmarshal([]byte(`{"node_id": "n1", "empty": true}`), &old); err != nil || old.level() != storage.LevelOne {
		t.Errorf("level %d, error %v", old.level(), err)
	}
	b, err := json.Marshal(Standing{NodeID: "n1", Understands: storage.LevelTwo})
	if err != nil || !strings.Contains(string(b), `"understands":2`) {
		t.Errorf("standing %s, error %v", b, err)
	}
}

// The leader would send the snapshot again and again.
func TestSink_stopsTheNodeWhenTheStreamIsOfANewerProgram(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	var failure error
	shots := &snapshots{store: s, fail: func(err error) { failure = err }, received: func(error) {}, refuse: func() {}}
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

// A form that older members would stop at does not get into the log before the raise.
func TestPropose_refusesAFormAboveTheLevelInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.open("n1")
		n := c.leader()
		if _, err := n.Propose(t.Context(), ChangeClaim{}).Wait(t.Context()); !errors.Is(err, ErrLevel) {
			t.Errorf("at level %d: %v, want ErrLevel", n.Store().Level(), err)
		}
		must(t, n, RaiseLevel{Level: storage.LevelTwo})
		must(t, n, ChangeClaim{})
	})
}
