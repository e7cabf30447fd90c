package bulk

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonmq/carillon/storage/codec"
)

// The set against plain lists; sets of before never change, and each comes back as it was written.
func TestSet_equalsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		var running, ended []Operation // running by id, ended by their end
		now, next := int64(0), uint64(1)
		before, then := s, s.All()
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				o := Operation{What: fmt.Sprint("what ", next), Who: "ann", UpperSeq: next * 7, Started: now, Problem: "not taken", Counts: Counts{Done: 9}}
				var ok bool
				s, ok = s.Start(o)
				if ok != (len(running) < MostRunning) {
					t.Fatalf("started: %t beside %d", ok, len(running))
				}
				if ok {
					running = append(running, Operation{ID: next, What: o.What, Who: o.Who, UpperSeq: o.UpperSeq, Started: o.Started, State: Running})
					next++
				}
			},
			"step": func(t *rapid.T) {
				if len(running) == 0 {
					return
				}
				at := rapid.IntRange(0, len(running)-1).Draw(t, "at")
				o, ok := s.Running(running[at].ID)
				if !ok || o != running[at] {
					t.Fatalf("%+v (%t) runs, want %+v", o, ok, running[at])
				}
				o.Cursor, o.Counts, o.Problem = fmt.Sprint(now), o.Plus(Counts{1, 2, 3, 4}), "no such target"
				o.State = rapid.SampledFrom([]State{Running, Running, Stopped, Finished}).Draw(t, "state")
				if o.State == Running {
					running[at] = o
				} else {
					o.Ended = now
					running = append(append([]Operation(nil), running[:at]...), running[at+1:]...)
					if ended = append(ended, o); len(ended) > MostEnded {
						ended = ended[1:]
					}
				}
				s = s.With(o)
			},
			"pass": func(t *rapid.T) {
				now += rapid.Int64Range(0, KeptFor/3).Draw(t, "ms")
				s = s.Forget(now)
				for len(ended) > 0 && ended[0].Ended < now-KeptFor {
					ended = ended[1:]
				}
			},
			"keep": func(*rapid.T) { before, then = s, s.All() },
			"": func(t *rapid.T) {
				want := map[uint64]Operation{}
				for _, o := range append(append([]Operation(nil), running...), ended...) {
					want[o.ID] = o
				}
				got := map[uint64]Operation{}
				for i, o := range s.All() {
					got[o.ID] = o
					if i > 0 && s.All()[i-1].ID <= o.ID {
						t.Fatal("not the newest first")
					}
				}
				if diff := cmp.Diff(want, got); diff != "" || s.Started() != next-1 {
					t.Fatalf("%d were started, want %d (-want +got):\n%s", s.Started(), next-1, diff)
				}
				if !reflect.DeepEqual(before.All(), then) {
					t.Fatal("a set of before has changed")
				}
				d := codec.NewDecoder(s.Append(nil))
				if back := Read(&d); d.Finish("operations") != nil || !reflect.DeepEqual(back.All(), s.All()) || back.Started() != s.Started() {
					t.Fatalf("it comes back as %+v", back)
				}
			},
		})
	})
}

func TestSet_knowsSoManyThatHaveEnded(t *testing.T) {
	var s Set
	for range MostEnded + 3 {
		s, _ = s.Start(Operation{})
		s = s.With(Operation{ID: s.Started(), State: Stopped, Ended: 1})
	}
	if all := s.All(); len(all) != MostEnded || all[MostEnded-1].ID != 4 {
		t.Errorf("%d are known", len(all))
	}
}

func TestRead_refusesWhatNobodyWrites(t *testing.T) {
	var s Set
	s, _ = s.Start(Operation{What: "a", Who: "b"})
	s, _ = s.Start(Operation{What: "c"})
	s = s.With(Operation{ID: 2, State: Finished, Ended: 9, Cursor: "x"})
	b := s.Append(nil)
	for n := range b {
		d := codec.NewDecoder(b[:n])
		if Read(&d); d.Finish("operations") == nil {
			t.Errorf("cut to %d of %d bytes it decodes", n, len(b))
		}
	}
	for name, broken := range map[string]Set{
		"one that runs and has ended":     {started: 1, running: []Operation{{ID: 1, State: Stopped}}},
		"one that has ended and runs":     {started: 1, ended: []Operation{{ID: 1, State: Running}}},
		"one that was never started":      {started: 1, running: []Operation{{ID: 2, State: Running}}},
		"out of order":                    {started: 2, running: []Operation{{ID: 2, State: Running}, {ID: 1, State: Running}}},
		"an ended one that never started": {ended: []Operation{{ID: 1, State: Finished}}},
	} {
		d := codec.NewDecoder(broken.Append(nil))
		if Read(&d); !d.Failed() {
			t.Errorf("%s: it decodes", name)
		}
	}
}

func TestCheckTexts_namesTheOneThatIsTooLong(t *testing.T) {
	if err := CheckTexts(strings.Repeat("w", MostWhat), strings.Repeat("w", MostWho), strings.Repeat("w", MostCursor), ""); err != nil {
		t.Error(err)
	}
	if err := CheckTexts("", strings.Repeat("w", MostWho+1), "", ""); !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "who asks has 257 bytes") {
		t.Error(err)
	}
}
