package brokertest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
)

// A clockTest runs nodes with messages on their way; nothing may be more than max_skew early,
// by a clock that nobody sets.
type clockTest struct {
	*player
	t *testing.T
}

func onClocks(t *testing.T, settings string, play func(c clockTest)) {
	synctest.Test(t, func(t *testing.T) {
		arguments := parseArguments(strings.Fields(settings))
		c := newCluster(t, arguments)
		defer c.stop()
		test := clockTest{newPlayer(c, NewReport()), t}
		c.must(test.createTopic("orders.delay", parseArguments(nil)))
		c.must(test.createTopic("orders", parseArguments(nil)))
		play(test)
		for _, n := range c.nodes {
			test.set(n, -wrong(n))
		}
		test.settle(arguments)
		test.check(arguments)
	})
}

// set sets the clock of a node and notes it.
func (c clockTest) set(n *node, by time.Duration) {
	if by == 0 {
		return
	}
	n.clock.step(by)
	c.observer.struck(ledger.Fault{Kind: "clock", Node: n.member.ID, From: time.Now()})
}

// wrong returns by how much the clock of the node is.
func wrong(n *node) time.Duration {
	settings := n.clock.settings()
	return settings[len(settings)-1].wrong(time.Now())
}

func (c clockTest) startAll() {
	c.t.Helper()
	c.must(c.each("all", (*node).start, func(n *node) bool { return !n.running() }))
	c.leader()
	time.Sleep(100 * time.Millisecond) // what is produced before the term has looked at the delay topics is none of a new cluster's
}

func (c clockTest) produceSome(arguments ...string) {
	c.t.Helper()
	c.must(c.produce("orders.delay", parseArguments(arguments)))
}

// arrived is how many messages were delivered so far.
func (c clockTest) arrived() int {
	c.t.Helper()
	found := map[ledger.Identity]bool{}
	for _, d := range c.consume() {
		found[d.Identity] = true
	}
	return len(found)
}

func (c clockTest) wantProblem(n *node, text string) {
	c.t.Helper()
	if problems := n.broker.Status().Problems; !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, text) }) {
		c.t.Errorf("problems of %s %q do not say %q", n.member.ID, problems, text)
	}
}

func (c clockTest) wantNoProblem() {
	c.t.Helper()
	for _, n := range c.nodes {
		if problems := n.broker.Status().Problems; len(problems) > 0 {
			c.t.Errorf("problems of %s: %q", n.member.ID, problems)
		}
	}
}

// count returns what a counter of the node says.
func (c clockTest) count(n *node, name string) float64 {
	c.t.Helper()
	families, err := n.metrics.Gather()
	c.must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	c.t.Fatalf("there is no metric %s", name)
	return 0
}

// A year too early is irrevocable. The others deliver, on time.
func TestClock_ofALeaderThatJumpsDeliversNothing(t *testing.T) {
	for name, step := range map[string]time.Duration{"a year ahead": 365 * 24 * time.Hour, "a year back": -365 * 24 * time.Hour, "a second ahead": time.Second} {
		t.Run(name, func(t *testing.T) {
			onClocks(t, "nodes=3 left=20", func(c clockTest) {
				c.startAll()
				c.produceSome("count=60", "spread=30s", "deliver-after=2s")
				c.produceSome("count=20", "deliver-after=300d")
				first := c.leader()
				c.set(first, step)
				time.Sleep(4 * time.Second)
				if second := c.leader(); second == first {
					t.Fatalf("%s still leads: %q", first.member.ID, first.broker.Status().Problems)
				}
				c.wantProblem(first, "than clock.max_skew 500ms: it does not lead")
				if c.count(first, "carillon_clock_stops_total") != 1 || c.count(first, "carillon_clock_refusals_total") != 1 {
					t.Errorf("%v stops and %v refusals counted", c.count(first, "carillon_clock_stops_total"), c.count(first, "carillon_clock_refusals_total"))
				}
				time.Sleep(time.Minute)
				if got := c.arrived(); got != 60 {
					t.Errorf("%d messages delivered, want the 60 of the next minute", got)
				}
				c.set(first, -step)
				time.Sleep(20 * time.Second)
				c.wantNoProblem()
			})
		})
	}
}

// Forth and back before anybody was asked: nothing was due in between.
func TestClock_thatComesBackDeliversNothingMeanwhile(t *testing.T) {
	onClocks(t, "nodes=1 left=20", func(c clockTest) {
		c.startAll()
		c.produceSome("count=20", "deliver-after=300d")
		time.Sleep(5 * time.Second)
		for range 3 {
			c.set(c.node("n1"), 365*24*time.Hour)
			time.Sleep(9 * time.Second)
			c.wantProblem(c.node("n1"), "firing is stopped")
			c.set(c.node("n1"), -365*24*time.Hour)
			time.Sleep(3 * time.Second)
			c.wantNoProblem()
		}
		if got := c.arrived(); got != 0 {
			t.Errorf("%d messages delivered", got)
		}
	})
}

// What a machine sees that wakes, or a whole host with all its nodes: the new time is right.
func TestClock_ofAllThatJumpsTogetherIsRight(t *testing.T) {
	onClocks(t, "nodes=3 left=20", func(c clockTest) {
		c.startAll()
		c.produceSome("count=20", "deliver-after=1h")
		leader := c.leader()
		time.Sleep(15 * time.Second)
		for _, n := range c.nodes {
			c.set(n, 30*time.Minute)
		}
		time.Sleep(2 * time.Second)
		if c.leader() != leader || c.count(leader, "carillon_clock_stops_total") != 1 {
			t.Errorf("the leader is %s, it stopped %v times", c.leader().member.ID, c.count(leader, "carillon_clock_stops_total"))
		}
		c.wantNoProblem()
		for _, n := range c.nodes {
			c.set(n, -30*time.Minute)
		}
		time.Sleep(2 * time.Second)
		c.wantNoProblem()
	})
}

// A laptop that wakes: nobody to ask, so the new time must be steady first.
func TestClock_aloneGoesOnAfterTenSteadySeconds(t *testing.T) {
	for _, settings := range []string{"nodes=1", "nodes=3 program=1"} { // whose others do not report
		t.Run(settings, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newCluster(t, parseArguments(strings.Fields(settings)))
				defer cluster.stop()
				c := clockTest{newPlayer(cluster, NewReport()), t}
				c.must(c.createTopic("orders.delay", parseArguments(nil)))
				c.must(c.createTopic("orders", parseArguments(nil)))
				c.startAll()
				c.produceSome("count=15", "deliver-after=1h")
				c.produceSome("count=5", "deliver-after=7s") // by the time before, too, nothing becomes due
				time.Sleep(5 * time.Second)
				leader := c.leader()
				c.set(leader, time.Hour)
				time.Sleep(5 * time.Second)
				c.wantProblem(leader, "no other member reports its clock")
				c.set(leader, time.Hour) // once more: not steady
				time.Sleep(9 * time.Second)
				if got := c.arrived(); got != 0 {
					t.Errorf("%d messages delivered after 9 s", got)
				}
				if err := leader.broker.Ready(); err == nil || !strings.Contains(err.Error(), "firing is stopped") {
					t.Errorf("ready: %v", err)
				}
				time.Sleep(3 * time.Second)
				if got := c.arrived(); got != 20 {
					t.Errorf("%d messages delivered after 12 s", got)
				}
				if c.leader() != leader || leader.broker.Ready() != nil {
					t.Error("leadership moved, or is not ready")
				}
				c.wantNoProblem()
			})
		})
	}
}

func TestClock_smallStepsAndSlewingStopNothing(t *testing.T) {
	onClocks(t, "nodes=3 duplicates=0", func(c clockTest) {
		c.startAll()
		c.produceSome("count=100", "spread=100s", "deliver-after=2s")
		leader := c.leader()
		all := 400 * time.Millisecond
		for range 20 {
			for _, n := range c.nodes { // as NTP has them do
				c.set(n, all)
			}
			all = -all
			time.Sleep(5 * time.Second)
		}
		c.set(leader, 450*time.Millisecond)
		time.Sleep(12 * time.Second)
		c.set(leader, -450*time.Millisecond)
		time.Sleep(time.Second)
		if c.leader() != leader || c.count(leader, "carillon_clock_refusals_total") != 0 {
			t.Error("leadership moved")
		}
		c.wantNoProblem()
		for _, n := range c.nodes {
			c.set(n, -wrong(n))
		}
		time.Sleep(2 * time.Second)
	})
}

// A clock that is wrong from the start is known before it delivers anything.
func TestClock_wrongFromTheStartDoesNotLead(t *testing.T) {
	for _, wrong := range []time.Duration{time.Hour, -time.Hour} {
		onClocks(t, "nodes=3 left=20 start=earliest", func(c clockTest) {
			for _, n := range c.nodes[:2] {
				n.start()
			}
			c.produceSome("count=20", "deliver-after=50m")
			time.Sleep(5 * time.Second)
			third := c.nodes[2]
			c.set(third, wrong)
			third.start()
			time.Sleep(15 * time.Second)
			c.wantProblem(third, "it does not lead")
			before := c.leader().broker.Status().Term
			// The two restart, so that the third is elected sooner or later.
			for range 6 {
				leader := c.leader()
				leader.stop()
				time.Sleep(3 * time.Second)
				leader.start()
				time.Sleep(5 * time.Second)
			}
			if c.leader() == third || c.leader().broker.Status().Term == before {
				t.Errorf("%s leads", c.leader().member.ID)
			}
			if got := c.arrived(); got != 0 {
				t.Errorf("%d messages delivered", got)
			}
		})
	}
}

// All start at once, the first leader's clock is wrong.
func TestClock_wrongAtTheBirthOfAClusterDeliversNothing(t *testing.T) {
	for i := range 3 {
		onClocks(t, "nodes=3 left=20 start=earliest", func(c clockTest) {
			c.produceSome("count=20", "deliver-after=50m")
			c.set(c.nodes[i], time.Hour)
			for _, n := range c.nodes {
				n.start()
			}
			time.Sleep(time.Minute)
			if got := c.arrived(); got != 0 || c.leader() == c.nodes[i] {
				t.Errorf("%d messages delivered, %s leads, the clock of %s is wrong", got, c.leader().member.ID, c.nodes[i].member.ID)
			}
		})
	}
}

// Two of three: the one that answers tells a jump of the leader's clock from the right time.
func TestClock_isJudgedByTheOneMemberThatAnswers(t *testing.T) {
	for name, both := range map[string]bool{"the leader jumps": false, "both jump": true} {
		t.Run(name, func(t *testing.T) {
			onClocks(t, "nodes=3 left=20", func(c clockTest) {
				c.startAll()
				c.produceSome("count=20", "deliver-after=300d")
				leader := c.leader()
				others := slices.DeleteFunc(slices.Clone(c.nodes), func(n *node) bool { return n == leader })
				others[0].stop()
				time.Sleep(15 * time.Second)
				c.set(leader, 24*time.Hour)
				if both {
					c.set(others[1], 24*time.Hour)
				}
				time.Sleep(5 * time.Second)
				if moved := c.leader() != leader; moved == both {
					t.Errorf("leadership moved: %v; problems %q", moved, leader.broker.Status().Problems)
				}
				if both {
					c.wantNoRunningProblem()
				}
			})
		})
	}
}

func (c clockTest) wantNoRunningProblem() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.running() {
			if problems := n.broker.Status().Problems; len(problems) > 0 {
				c.t.Errorf("problems of %s: %q", n.member.ID, problems)
			}
		}
	}
}

// A cluster of one believes a clock that stays a year ahead. That is in the log when the clock is right again: the status
// says that what expires is dropped, and all else is delivered.
func TestClock_thatWasBelievedStaysInTheLog(t *testing.T) {
	onClocks(t, "nodes=1", func(c clockTest) {
		const year = 365 * 24 * time.Hour
		c.startAll()
		c.set(c.nodes[0], year)
		time.Sleep(30 * time.Second)
		c.produceSome("count=1", "deliver-after=1s")
		time.Sleep(10 * time.Second)
		c.wantNoProblem()
		c.set(c.nodes[0], -year)
		time.Sleep(time.Minute)
		c.wantProblem(c.nodes[0], "expiry: the time of the log is 2000-12-31T")
		c.produceSome("count=3", "deliver-after=1s", "deliver-expires-after=1h")
		c.produceSome("count=5", "deliver-after=1s")
		time.Sleep(30 * time.Second)
		if got, expired := c.arrived(), c.count(c.nodes[0], "carillon_expired_total"); got != 6 || expired != 3 {
			t.Errorf("%d messages delivered and %v expired", got, expired)
		}
	})
}

// No two agree: the leader stays, delivers by its own clock, and says so.
func TestClock_staysWhereNobodyAgrees(t *testing.T) {
	onClocks(t, "nodes=3", func(c clockTest) {
		for i, n := range c.nodes {
			c.set(n, time.Duration(i)*time.Minute)
			n.start()
		}
		leader := c.leader()
		c.produceSome("count=20", "deliver-after=5m")
		time.Sleep(30 * time.Second)
		term := c.leader().broker.Status().Term
		c.wantProblem(leader, "no majority of the clocks agrees within clock.max_skew 500ms (n1 ")
		time.Sleep(time.Minute)
		if c.leader() != leader || leader.broker.Status().Term != term {
			t.Error("leadership moved")
		}
		// Its own clock is set on top of that: with nobody to agree, nothing is due by it.
		c.set(leader, 24*time.Hour)
		time.Sleep(time.Minute)
		c.wantProblem(leader, "no majority agrees")
		if got := c.arrived(); got != 0 {
			t.Errorf("%d messages delivered", got)
		}
		for _, n := range c.nodes {
			c.set(n, -wrong(n))
		}
		time.Sleep(20 * time.Second)
		c.wantNoProblem()
	})
}

// What is claimed cannot be cancelled any more. So while firing is stopped nothing is claimed, also not by what comes with a
// short delay, for which the time goes on that delays are counted from.
func TestClock_thatStopsFiringStopsClaimsAsWell(t *testing.T) {
	onClocks(t, "nodes=3", func(c clockTest) {
		for i, n := range c.nodes {
			c.set(n, time.Duration(i)*time.Minute)
			n.start()
		}
		leader := c.leader()
		claimed := func() time.Time { return time.UnixMilli(leader.alive.Load().Store().State().Claim.Through) }
		time.Sleep(30 * time.Second)
		c.set(leader, 24*time.Hour)
		time.Sleep(10 * time.Second)
		c.wantProblem(leader, "no majority agrees")
		before := claimed()
		time.Sleep(5 * time.Minute)
		c.produceSome("count=10", "every=100ms", "deliver-after=10ms")
		if now := claimed(); now.After(before) {
			t.Errorf("claimed from %v through %v while firing is stopped", before.UTC(), now.UTC())
		}
		for _, n := range c.nodes {
			c.set(n, -wrong(n))
		}
		time.Sleep(20 * time.Second)
		if got := c.arrived(); got != 10 {
			t.Errorf("%d messages delivered once the clocks agree", got)
		}
	})
}

// A clock that drifts is found by the comparison that follows.
func TestClock_thatDriftsGivesLeadershipAway(t *testing.T) {
	onClocks(t, "nodes=3", func(c clockTest) {
		c.startAll()
		c.produceSome("count=60", "spread=120s", "deliver-after=20s")
		leader := c.leader()
		for range 80 {
			c.set(leader, 10*time.Millisecond)
			time.Sleep(time.Second)
		}
		if c.leader() == leader {
			t.Errorf("%s still leads %v ahead", leader.member.ID, wrong(leader))
		}
	})
}

// A frozen process keeps both its clocks, and one that does not answer is not judged by.
func TestClock_freezingIsNoSkew(t *testing.T) {
	onClocks(t, "nodes=3", func(c clockTest) {
		c.startAll()
		c.produceSome("count=60", "spread=60s", "deliver-after=2s")
		for range 3 {
			leader, follower := c.leader(), c.node("follower")
			follower.freeze()
			time.Sleep(8 * time.Second)
			follower.thaw()
			leader.freeze()
			time.Sleep(8 * time.Second)
			leader.thaw()
			time.Sleep(3 * time.Second)
		}
		for _, n := range c.nodes {
			if c.count(n, "carillon_clock_refusals_total") != 0 || c.count(n, "carillon_clock_stops_total") != 0 {
				t.Errorf("%s stopped or refused", n.member.ID)
			}
		}
		c.wantNoProblem()
	})
}

// Members of the version before do not report, and are no judges of each other either.
func TestClock_ofOldMembersIsNotJudged(t *testing.T) {
	onClocks(t, "nodes=3 program=1", func(c clockTest) {
		c.set(c.nodes[0], 400*time.Millisecond)
		c.startAll()
		c.produceSome("count=20", "deliver-after=5s")
		time.Sleep(20 * time.Second)
		if got := c.arrived(); got != 20 {
			t.Errorf("%d messages delivered", got)
		}
		c.wantNoProblem()
	})
}

// Deliveries of a leader in good order wait for no comparison: those that do not answer cost
// nothing, and the first message of a term is on time.
func TestClock_unreachableMembersDelayNoTerm(t *testing.T) {
	onClocks(t, "nodes=3", func(c clockTest) {
		c.startAll()
		c.produceSome("count=20", "spread=20s", "deliver-after=1s")
		dead := c.leader()
		dead.freeze() // as a machine without power: nobody hangs up
		next := c.leader()
		begin := time.Now()
		c.await(time.Minute, "a term that runs", func() bool { return next.broker.Ready() == nil })
		if took := time.Since(begin); took > time.Second {
			t.Errorf("ready %v after the election", took)
		}
	})
}
