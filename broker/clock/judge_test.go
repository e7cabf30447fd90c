package clock

import (
	"slices"
	"testing"
	"time"
)

const year = 365 * 24 * time.Hour

// others reads shifts of n2, n3 and so on.
func others(shifts ...time.Duration) []Reading {
	var all []Reading
	for i, shift := range shifts {
		all = append(all, Reading{Member: []string{"n2", "n3", "n4", "n5"}[i], Shift: shift})
	}
	return all
}

// Shifts are told against the own wall clock, whose shift is 0.
func TestJudge(t *testing.T) {
	const most = 500 * time.Millisecond
	const ms = time.Millisecond
	slow := func(r []Reading, by time.Duration) []Reading {
		for i := range r {
			r[i].Error = by
		}
		return r
	}
	for _, test := range []struct {
		what     string
		evidence Evidence
		want     Standing
		right    time.Duration
		able     []string
	}{
		{"alone", Evidence{}, Alone, 0, nil},
		{"alone, just set", Evidence{Stopped: true, Right: -year, Steady: 9 * time.Second}, Alone, -year, nil},
		{"alone, set and steady", Evidence{Stopped: true, Right: -year, Steady: 10 * time.Second}, Alone, 0, nil},

		{"all together", Evidence{Others: others(-20*ms, 30*ms)}, Agreed, 0, nil},
		{"at the edge of the others", Evidence{Others: others(400*ms, 450*ms)}, Agreed, 400 * ms, nil},
		{"at the limit", Evidence{Others: others(500*ms, 500*ms)}, Agreed, 500 * ms, nil},
		{"ahead of both", Evidence{Others: others(-501*ms, -600*ms)}, Skewed, -501 * ms, []string{"n2", "n3"}},
		{"behind both", Evidence{Others: others(year, year+400*ms)}, Skewed, year, []string{"n2", "n3"}},
		{"ahead, if the answers were not so slow", Evidence{Others: slow(others(-501*ms, -600*ms), 2*ms)}, Agreed, -501 * ms, nil},
		{"one other is wrong", Evidence{Others: others(year, 10*ms)}, Agreed, 10 * ms, nil},
		{"all differ, this one in the middle", Evidence{Others: others(year, -year)}, Divided, 0, nil},
		{"all differ, this one at the end", Evidence{Others: others(year, 2*year)}, Divided, 0, nil},

		{"one other alone agrees", Evidence{Others: others(300 * ms)}, Agreed, 0, nil},
		{"one other alone differs", Evidence{Others: others(-year)}, Divided, 0, nil},
		{"four of five agree otherwise", Evidence{Others: others(year, year, year, year)}, Skewed, year, []string{"n2", "n3", "n4", "n5"}},
		{"three of five agree otherwise", Evidence{Others: others(0, year, year, year)}, Skewed, year, []string{"n3", "n4", "n5"}},
		{"two against two", Evidence{Others: others(0, year, year)}, Divided, 0, nil},
		{"two of five agree otherwise, two differ", Evidence{Others: others(5*year, 5*year, 9*year, -3*year)}, Divided, 0, nil},

		{"set, and both others agree", Evidence{Stopped: true, Right: -year, Others: others(10*ms, -10*ms)}, Agreed, 0, nil},
		{"set, and the one that answers agrees", Evidence{Stopped: true, Right: -year, Others: others(10 * ms)}, Agreed, 0, nil},
		{"set, and one of two agrees", Evidence{Stopped: true, Right: -year, Others: others(10*ms, -year)}, Agreed, 0, nil},
		{"set, and the one that answers was not", Evidence{Stopped: true, Right: -year, Others: others(-year + ms)}, Skewed, -year + ms, []string{"n2"}},
		{"set, and both others were not", Evidence{Stopped: true, Right: -year, Others: others(-year, -year)}, Skewed, -year, []string{"n2", "n3"}},
		{"set, and the one that answers differs from either", Evidence{Stopped: true, Right: -year, Others: others(3 * year)}, Divided, -year, nil},
		{"steady, but a majority is needed where others report", Evidence{Stopped: true, Right: -year, Steady: time.Hour, Others: others(3 * year)}, Divided, -year, nil},

		{"stopped, near the edge", Evidence{Stopped: true, Right: 450 * ms, Others: others(450*ms, 450*ms)}, Skewed, 450 * ms, []string{"n2", "n3"}},
		{"stopped, well within it", Evidence{Stopped: true, Right: 370 * ms, Others: others(370*ms, 370*ms)}, Agreed, 370 * ms, nil},
	} {
		test.evidence.MaxSkew = most
		v := test.evidence.Judge()
		if v.Standing != test.want || v.Right != test.right || !slices.Equal(v.Able, test.able) {
			t.Errorf("%s: %s, right %v, able %v, want %s, %v, %v", test.what, v.Standing, v.Right, v.Able, test.want, test.right, test.able)
		}
	}
}

func TestVerdict_isProvenByAMajorityOfAllMembers(t *testing.T) {
	for _, test := range []struct {
		what     string
		evidence Evidence
		members  int
		want     bool
	}{
		{"nobody answers", Evidence{}, 3, false},
		{"one of two agrees", Evidence{Others: others(0)}, 3, true},
		{"one of two answers and differs", Evidence{Others: others(year)}, 3, false},
		{"one of two answers and was not set", Evidence{Stopped: true, Right: year, Others: others(year)}, 3, false},
		{"both differ", Evidence{Others: others(year, year)}, 3, true},
		{"all differ", Evidence{Others: others(year, -year)}, 3, false},
		{"one of four agrees", Evidence{Others: others(0)}, 5, false},
		{"two of four agree", Evidence{Others: others(0, 0)}, 5, true},
		{"two of four agree, two differ", Evidence{Others: others(0, 0, year, year)}, 5, true},
		{"two of four differ", Evidence{Others: others(year, year)}, 5, false},
		{"three of four differ", Evidence{Others: others(year, year, year)}, 5, true},
		{"three of four differ, one agrees", Evidence{Others: others(0, year, year, year)}, 5, true},
	} {
		test.evidence.MaxSkew = time.Second
		if v := test.evidence.Judge(); v.Proven(test.members) != test.want {
			t.Errorf("%s: %s, proven %v", test.what, v.Standing, !test.want)
		}
	}
}

// Whatever the clocks are, what is condemned is far from the median, a single member condemns
// nobody whose clock was not set, and of two that condemn each other at most one is right.
func TestJudge_neverLetsTwoMembersCondemnEachOther(t *testing.T) {
	shifts := []time.Duration{0, 400, 800, 5000, 9000, -3000}
	for n := 2; n <= 4; n++ {
		clocks := make([]time.Duration, n)
		var walk func(i int)
		walk = func(i int) {
			if i < n {
				for _, s := range shifts {
					clocks[i] = s * time.Millisecond
					walk(i + 1)
				}
				return
			}
			condemned := 0
			for i, own := range clocks {
				e := Evidence{MaxSkew: 500 * time.Millisecond, Own: own}
				for j, other := range clocks {
					if j != i {
						e.Others = append(e.Others, Reading{Member: "other", Shift: other})
					}
				}
				if e.Judge().Standing == Skewed {
					condemned++
				}
			}
			if condemned*2 >= n {
				t.Errorf("%v: %d of %d are condemned", clocks, condemned, n)
			}
		}
		walk(0)
	}
}
