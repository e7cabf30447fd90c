package top

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

// now is Sunday, 17 March 2030, 17:46:40 UTC.
var now = time.UnixMilli(1_900_000_000_000)

// busy is a cluster of three at work, of which the user has paused something and something fails.
func busy() State {
	bounds := DueBounds(now)
	h := client.Histogram{Exact: true}
	add := func(from, to *int64, count uint64) {
		h.Buckets = append(h.Buckets, client.Bucket{From: from, To: to, Count: count})
	}
	add(nil, &bounds[0], 3)
	for i := range minutes {
		if n := uint64(i * i); i%7 != 3 {
			add(&bounds[i], &bounds[i+1], n)
		}
	}
	add(&bounds[minutes], nil, 1_234_567)
	return State{
		Now: now, Name: "prod", At: now,
		Status: broker.Status{
			Node: "n1", Leader: "n1", Term: 7, Pending: 1_300_000, OldestDue: now.UnixMilli() - 1500, Lag: new(int64(12)),
			Members: []broker.MemberStatus{
				{ID: "n1", API: "n1.example:7401", Voter: new(true)},
				{ID: "n2", API: "n2.example:7401", Voter: new(true), LastContact: now.UnixMilli() - 40},
				{ID: "n3", API: "n3.example:7401", Voter: new(false)},
			},
			Parked:   []string{"bills"},
			Paused:   []client.Pause{{Kind: "topic", Name: "orders.delay", Who: "anna@desk", Why: "wrong \x1b[31mprices", Since: now.UnixMilli() - 90_000}},
			Problems: []string{"kafka: no broker answers"},
		},
		Due: h, Bounds: bounds,
		Rates: Rates{
			Over: 10 * time.Second, In: 1203.4, Out: 1198, Expired: .2, Delivered: 11980,
			Late50: 5 * time.Millisecond, Late99: 20 * time.Millisecond, LateMost: time.Minute,
		},
	}
}

func TestRender_fitsATerminalOf80By24(t *testing.T) {
	expect(t, Render(busy(), 80, 24), `
prod: n1 leads, term 7                                   2030-03-17 17:46:40 UTC

pending   1,300,000       oldest due    1.5s ago        lag   12 records
in        1,203/s         out           1,198/s
expired   0.2/s           dead letters  0/s
lateness  half ≤ 5ms, 99 % ≤ 20ms, all ≤ 1m, of 11,980 in 10s

problem    kafka: no broker answers
parked     target bills
paused     topic orders.delay, 1m30s ago, by anna@desk: wrong \x1b[31mprices

due next, by the minute      3 overdue, 58,621 in the next hour, 1,234,567 later
   3364                                                       ▁▃▄▆█
                                                         ▂▃▅ ██████
                                                  ▁▂▃ ▆▇████ ██████
                                           ▁▂▃ ▅▆▇███ ██████ ██████
                                  ▁▂▃▄▄ ▆▇████ ██████ ██████ ██████
         ▁▁ ▁▁▁▁▁▁ ▁▂▂▂▃▃ ▄▅▅▆▆▇ ██████ ██████ ██████ ██████ ██████
        now       +10m      +20m      +30m      +40m      +50m

member  votes  heard     api
n1      true   leads     n1.example:7401
n2      true   40ms ago  n2.example:7401
n3      false  never     n3.example:7401
`)
}

func TestRender_leavesMembersOutWhereThereIsLittleRoom(t *testing.T) {
	expect(t, Render(busy(), 60, 17), `
prod: n1 leads, term 7               2030-03-17 17:46:40 UTC

pending   1,300,000       oldest due    1.5s ago        l...
in        1,203/s         out           1,198/s
expired   0.2/s           dead letters  0/s
lateness  half ≤ 5ms, 99 % ≤ 20ms, all ≤ 1m, of 11,980 in...

problem    kafka: no broker answers
parked     target bills
paused     topic orders.delay, 1m30s ago, by anna@desk: w...

due next, by the minute                            3 overdue
   2601                                               ▂▃▄▅▆█
                                               ▂▃▄▅▆▇ ██████
                                    ▁▂▃ ▄▅▆▇▇█ ██████ ██████
         ▁▁ ▁▁▁▁▁▁ ▁▁▂▂▂▃ ▃▄▄▅▅▆ ▇█████ ██████ ██████ ██████
        now       +10m      +20m      +30m      +40m     ...
`)
}

func TestRender_usesALargeTerminal(t *testing.T) {
	expect(t, Render(busy(), 130, 50), `
prod: n1 leads, term 7                                                                                     2030-03-17 17:46:40 UTC

pending   1,300,000       oldest due    1.5s ago        lag   12 records
in        1,203/s         out           1,198/s
expired   0.2/s           dead letters  0/s
lateness  half ≤ 5ms, 99 % ≤ 20ms, all ≤ 1m, of 11,980 in 10s

problem    kafka: no broker answers
parked     target bills
paused     topic orders.delay, 1m30s ago, by anna@desk: wrong \x1b[31mprices

due next, by the minute                                                        3 overdue, 58,621 in the next hour, 1,234,567 later
   3364                                                                                                                 ▂▂▅▅██
                                                                                                                  ▂▂▅▅▇▇██████
                                                                                                          ▁▁▃▃▅▅  ████████████
                                                                                                    ▂▂▄▄▆▆██████  ████████████
                                                                                            ▁▁▃▃▆▆  ████████████  ████████████
                                                                                      ▄▄▆▆▇▇██████  ████████████  ████████████
                                                                          ▁▁▃▃▅▅▆▆██  ████████████  ████████████  ████████████
                                                              ▁▁▂▂▄▄▅▅  ████████████  ████████████  ████████████  ████████████
                                                ▁▁▂▂▃▃▄▄  ▆▆██████████  ████████████  ████████████  ████████████  ████████████
          ▁▁▁▁  ▁▁▁▁▁▁▁▁▁▁▁▁  ▂▂▃▃▄▄▄▄▅▅▆▆  ▇▇██████████  ████████████  ████████████  ████████████  ████████████  ████████████
        now                 +10m                +20m                +30m                +40m                +50m

member  votes  heard     api
n1      true   leads     n1.example:7401
n2      true   40ms ago  n2.example:7401
n3      false  never     n3.example:7401
`)
}

func TestRender_ofAClusterThatDoesNotAnswerTellsOfTheLastTime(t *testing.T) {
	s := busy()
	s.Trouble, s.Now = "no node answers at n1:7401", now.Add(75*time.Second)
	expect(t, Render(s, 80, 24)[:6], `
prod: n1 leads, term 7                                   2030-03-17 17:47:55 UTC
! no node answers at n1:7401
  all else is of 1m15s ago

pending   1,300,000       oldest due    1m16s ago       lag   12 records
in        1,203/s         out           1,198/s
`)
	expect(t, Render(State{Now: now, Name: "prod", Trouble: "no node answers"}, 80, 24), `
prod                                                     2030-03-17 17:46:40 UTC
! no node answers
`)
}

func TestRender_saysWhatIsNotKnown(t *testing.T) {
	follower := State{
		Now: now, At: now, Name: "prod",
		Status: broker.Status{
			Node: "n2", Leader: "n1", Term: 7, Pending: 5,
			Members: []broker.MemberStatus{{ID: "n1", API: "n1:7401"}, {ID: "n2", API: "n2:7401"}},
		},
		RatesTrouble: "rates: the leader n1 cannot be reached from here",
		DueTrouble:   "what is due next: this needs the permission view of all topics",
	}
	expect(t, Render(follower, 80, 24), `
prod: n1 leads, term 7                                   2030-03-17 17:46:40 UTC

pending   5               oldest due    none            lag   unknown
in        unknown         out           unknown
expired   unknown         dead letters  unknown
lateness  unknown

unknown    rates: the leader n1 cannot be reached from here
unknown    what is due next: this needs the permission view of all topics

member  votes    heard    api
n1      unknown  leads    n1:7401
n2      unknown  unknown  n2:7401
`)
	follower.RatesTrouble, follower.DueTrouble, follower.Bounds = "", "", DueBounds(now)
	follower.Due = client.Histogram{Buckets: []client.Bucket{{To: &follower.Bounds[0], Count: 1200, Within: 40}}}
	expect(t, Render(follower, 80, 24), `
prod: n1 leads, term 7                                   2030-03-17 17:46:40 UTC

pending   5               oldest due    none            lag   unknown
in        ...             out           ...
expired   ...             dead letters  ...
lateness  ...

due next, by the minute            ~1,200 overdue, ~0 in the next hour, ~0 later
      1









        now       +10m      +20m      +30m      +40m      +50m

member  votes    heard    api
n1      unknown  leads    n1:7401
n2      unknown  unknown  n2:7401
`)
}

func expect(t *testing.T, lines []string, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), strings.Join(lines, "\n")+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRender_neverLeavesTheTerminal(t *testing.T) {
	many := busy()
	for range 100 {
		many.Status.Problems = append(many.Status.Problems, strings.Repeat("é", 200))
	}
	many.Trouble = "no answer"
	for _, s := range []State{busy(), many, {Now: now}, {Now: now, Trouble: "no node answers"}} {
		for width := 1; width < 250; width += 7 {
			for height := 1; height < 80; height += 3 {
				lines := Render(s, width, height)
				if len(lines) > height {
					t.Errorf("%d lines of %d", len(lines), height)
				}
				for _, line := range lines {
					if n := utf8.RuneCountInString(line); n > width || strings.ContainsAny(line, "\x1b\n") {
						t.Errorf("%q is %d wide, of %d", line, n, width)
					}
				}
			}
		}
	}
}
