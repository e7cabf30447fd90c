package storage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// byTarget sorts what is due by the second, and to whom.
func byTarget(_ *Moment, e *Entry) (Group, bool) {
	return Group{Bucket: int(e.Due / 1000), Target: e.Target}, e.Target != "passed over"
}

// talliedStore has count messages, of which many are dead: the first ones due, as those that were delivered, and
// others at random.
func talliedStore(t *testing.T, seed uint64, count int) (*Store, map[Group]uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	s := openStore(t, t.TempDir())
	want := make(map[Group]uint64)
	delivered, cancelled := int64(random.IntN(4000)), random.IntN(90)
	for index := uint64(1); index <= 6; index++ {
		es := entries(count/6, 0, 0, 40)
		var dead []SeqRun
		for i := range es {
			es[i].Due = random.Int64N(10_000)
			es[i].Target = fmt.Sprint("target-", i%7)
			if i%11 == 0 {
				es[i].Target = "passed over"
			}
			if seq := (index-1)*uint64(len(es)) + uint64(i) + 1; es[i].Due < delivered || random.IntN(100) < cancelled {
				dead = append(dead, SeqRun{seq, seq})
			} else if g, counted := byTarget(nil, &es[i]); counted {
				want[g]++
			}
		}
		s.Accept(es)
		s.Kill(dead[:len(dead)/2])
		s.Applied(index)
		if index < 6 {
			flush(t, s, index)
		}
		s.Kill(dead)
		s.Applied(index)
	}
	return s, want
}

func TestTally_isExactOfWhatIsFew(t *testing.T) {
	s, want := talliedStore(t, 1, 6000)
	got, err := s.Tally(t.Context(), TallyQuery{From: Ref{Due: math.MinInt64}, Last: math.MaxInt64, Sort: byTarget})
	if err != nil || !got.Exact || got.Unseen != 0 || len(got.Groups) != len(want) || got.Moment.Index != 6 {
		t.Fatalf("%+v, %v", got, err)
	}
	for g, n := range want {
		if got.Groups[g] != (Figure{Count: n}) {
			t.Errorf("%v: %+v, want %d", g, got.Groups[g], n)
		}
	}
	got, err = s.Tally(t.Context(), TallyQuery{From: Ref{Due: 8000}, Last: 8999, Sort: byTarget})
	if err != nil || !got.Exact || len(got.Groups) != 7 || got.Groups[Group{8, "target-3"}].Count != want[Group{8, "target-3"}] {
		t.Errorf("%+v, %v", got, err)
	}
}

// Of a hundred figures some five may be further off than they say, whatever has died where.
func TestTally_saysHowFarItMayBeOff(t *testing.T) {
	figures, off, sum := 0, 0, 0.0
	for seed := range uint64(4) {
		s, want := talliedStore(t, seed, 60_000)
		got, err := s.Tally(t.Context(), TallyQuery{From: Ref{Due: math.MinInt64}, Last: math.MaxInt64, Sort: byTarget})
		if err != nil || got.Exact {
			t.Fatalf("exact %v, error %v", got.Exact, err)
		}
		for g, n := range want {
			f, seen := got.Groups[g]
			if !seen {
				f.Within = got.Unseen
			}
			figures++
			sum += float64(f.Within) / float64(n)
			if math.Abs(float64(f.Count)-float64(n)) > float64(f.Within) {
				off++
			}
		}
	}
	t.Logf("%d of %d figures are further off than they say, which is %.0f %% in the mean", off, figures, 100*sum/float64(figures))
	if off*100 > figures*7 || figures < 100 {
		t.Errorf("%d of %d figures are further off than they say", off, figures)
	}
}
