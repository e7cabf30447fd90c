package raftfsm

import (
	"errors"
	"strings"
	"testing"

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
	var failure error
	cfg := fsmConfig(1<<20, func(err error) { failure = err })
	cfg.Understands = storage.LevelOne
	f := NewFSM(s, cfg)
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
	for _, form := range [][2]byte{{0, kindAck}, {3, kindAck}, {1, 0}, {1, byte(len(forms))}, {255, 255}} {
		if got := levelOf(form[0], form[1]); got != 0 {
			t.Errorf("version %d of kind %d: level %d", form[0], form[1], got)
		}
	}
}

func TestAppendCommand_refusesFormsAboveTheLevel(t *testing.T) {
	for _, of := range []struct {
		level storage.Level
		names []string
	}{
		{storage.LevelTwo, []string{"change-claim"}},
		{storage.LevelThree, []string{"ingest-operations", "operate", "ack-ended", "replace-ended", "open-ids", "keep-outcomes", "change-claim-topics", "pause", "resume"}},
		{storage.LevelFour, []string{"ingest-records", "operate-once", "start-bulk", "step-bulk", "stop-bulk"}},
	} {
		for _, name := range of.names {
			if _, err := AppendCommand(nil, samples[name], of.level-1); !errors.Is(err, ErrLevel) {
				t.Errorf("%s at level %d: %v, want ErrLevel", name, of.level-1, err)
			}
			if _, err := AppendCommand(nil, samples[name], of.level); err != nil {
				t.Errorf("%s at level %d: %v", name, of.level, err)
			}
		}
	}
	for _, name := range []string{"ingest", "ack", "replace"} {
		if _, err := AppendCommand(nil, samples[name], storage.LevelOne); err != nil {
			t.Errorf("%s, which older programs read: %v", name, err)
		}
	}
}
