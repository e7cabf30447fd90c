package brokertest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// onThree runs three nodes with a delay topic and its target, and messages that are
// due soon.
func onThree(t *testing.T, play func(c *Cluster, p *player)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3"}))
		defer c.stop()
		p := &player{Cluster: c, start: time.Now()}
		c.must(p.createTopic("orders.delay", arguments{}))
		c.must(p.createTopic("orders", arguments{}))
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		time.Sleep(5 * time.Second)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=20", "deliver-after=10s"})))
		time.Sleep(5 * time.Second)
		play(c, p)
	})
}

// Who waits until a new cluster is ready, and produces then, must not find that counted as older than the cluster.
func TestReady_whenTheDelayTopicsWereLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=1"}))
		defer c.stop()
		p := &player{Cluster: c, start: time.Now()}
		c.must(p.createTopic("orders.delay", arguments{}))
		n := c.nodes[0]
		c.network.set(silent, n.member.ID, kafkaHost)
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		time.Sleep(4 * time.Second) // the look is not given up yet
		if err := n.broker.Ready(); err == nil || !strings.Contains(err.Error(), "not looked at the delay topics yet") {
			t.Errorf("ready: %v, though nothing is known of the delay topics", err)
		}
		c.network.set(open, n.member.ID, kafkaHost)
		for n.broker.Ready() != nil {
			time.Sleep(time.Millisecond)
		}
		if len(n.raft().Store().State().Positions) == 0 {
			t.Error("ready, and no partition has a position")
		}
	})
}

func TestReach_movesLeadershipToAMemberThatKafkaAnswers(t *testing.T) {
	for name, broken := range map[string]linkState{"cut": cut, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			onThree(t, func(c *Cluster, p *player) {
				first := c.leader()
				c.network.set(broken, first.member.ID, kafkaHost)
				time.Sleep(15 * time.Second)
				second := c.leader()
				if second == first {
					t.Fatalf("%s still leads 15 s after Kafka fell silent to it: %v", first.member.ID, first.broker.Status().Problems)
				}
				if pending := second.broker.Status().Pending; pending != 0 {
					t.Errorf("%d messages wait with the new leader", pending)
				}
				if err := second.broker.Ready(); err != nil {
					t.Errorf("the new leader is not ready: %v", err)
				}
				if problems := strings.Join(first.broker.Status().Problems, "\n"); !strings.Contains(problems, "Kafka did not answer "+first.member.ID) {
					t.Errorf("problems of the old leader %q do not say why it gave leadership away", problems)
				}

				c.network.set(open, first.member.ID, kafkaHost)
				time.Sleep(time.Minute)
				if problems := first.broker.Status().Problems; len(problems) != 0 {
					t.Errorf("problems %v though Kafka answers again", problems)
				}
				if c.leader() != second {
					t.Error("leadership moved back without need")
				}
			})
		})
	}
}

func TestReach_staysWhenKafkaAnswersNobody(t *testing.T) {
	onThree(t, func(c *Cluster, p *player) {
		first := c.leader()
		for _, n := range c.nodes {
			c.network.set(cut, n.member.ID, kafkaHost)
		}
		time.Sleep(5 * time.Minute)
		if c.leader() != first || first.broker.Status().Term != c.leader().broker.Status().Term {
			t.Error("leadership moved though Kafka answers nobody")
		}
		if err := first.broker.Ready(); err == nil || !strings.Contains(err.Error(), "Kafka has not answered") {
			t.Errorf("the leader is ready (%v) and Kafka does not answer it", err)
		}
		if problems := strings.Join(first.broker.Status().Problems, "\n"); !strings.Contains(problems, "stays here though Kafka has not answered") {
			t.Errorf("problems %q do not say that leadership stays", problems)
		}
		for _, n := range c.nodes {
			c.network.set(open, n.member.ID, kafkaHost)
		}
		time.Sleep(30 * time.Second)
		status := first.broker.Status()
		if status.Pending != 0 || len(status.Problems) != 0 || first.broker.Ready() != nil {
			t.Errorf("after Kafka is back: pending %d, problems %v, ready %v", status.Pending, status.Problems, first.broker.Ready())
		}
	})
}

// Who asks why is told what was asked, and what to do, on one line.
func TestReach_saysWhatASilentKafkaWasAsked(t *testing.T) {
	onThree(t, func(c *Cluster, p *player) {
		for _, n := range c.nodes {
			c.network.set(silent, n.member.ID, kafkaHost)
		}
		leader := c.leader()
		_, err := leader.broker.ReachKafka(context.Background())
		if err == nil || !strings.HasPrefix(err.Error(), "list topics: ") || !strings.Contains(err.Error(), "check kafka.brokers") {
			t.Errorf("error %v does not name what was asked and the remedy", err)
		}
		time.Sleep(time.Minute)
		stays := ""
		for _, problem := range leader.broker.Status().Problems {
			if strings.HasPrefix(problem, "leadership: stays here") {
				stays = problem
			}
		}
		if strings.Count(stays, "check kafka.brokers") != 2 || strings.Contains(stays, "\n") || !strings.Contains(stays, "; n") {
			t.Errorf("problem %q does not give the answers of the others on one line", stays)
		}
	})
}

// A full disk keeps nobody from accepting, unless all are full. What is due is delivered meanwhile.
func TestReach_movesLeadershipToAMemberWithRoom(t *testing.T) {
	onThree(t, func(c *Cluster, p *player) {
		first := c.leader()
		c.must(p.setDisk(first.member.ID, parseArguments([]string{"full"})))
		c.must(p.produce("orders.delay", parseArguments([]string{"count=30", "deliver-after=1h"})))
		time.Sleep(20 * time.Second)
		second := c.leader()
		if second == first {
			t.Fatalf("%s still leads 15 s after its disk was full: %v", first.member.ID, first.broker.Status().Problems)
		}
		if pending := second.broker.Status().Pending; pending != 30 {
			t.Errorf("%d messages wait with the new leader, want the 30 that the old one had no room for", pending)
		}
		time.Sleep(time.Minute) // Kafka answers it, and it has no room
		if problems := strings.Join(first.broker.Status().Problems, "\n"); !strings.Contains(problems, first.member.ID+" had no room for messages for 1") {
			t.Errorf("problems of the old leader %q do not say why it gave leadership away", problems)
		}

		// It may be elected again. It has not had room since: so it does not wait for ten seconds to ask.
		term := second.broker.Status().Term
		if _, err := second.raft().TransferLeadershipTo(context.Background(), []string{first.member.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		third := c.leader()
		if now := third.broker.Status().Term; third == first || now != term+2 {
			t.Errorf("%s leads in term %d after it was given leadership again in term %d", third.member.ID, now, term+1)
		}

		c.must(p.setDisk(first.member.ID, parseArguments([]string{"well"})))
		time.Sleep(time.Minute)
		if problems := first.broker.Status().Problems; len(problems) != 0 {
			t.Errorf("problems %v though there is room again", problems)
		}
		if c.leader() != third {
			t.Error("leadership moved back without need")
		}
	})
}

func TestReach_staysWhenAllDisksAreFull(t *testing.T) {
	onThree(t, func(c *Cluster, p *player) {
		first := c.leader()
		term := first.broker.Status().Term
		c.must(p.setDisk("all", parseArguments([]string{"full"})))
		c.must(p.produce("orders.delay", parseArguments([]string{"count=30", "deliver-after=1h"})))
		time.Sleep(5 * time.Minute)
		status := first.broker.Status()
		if c.leader() != first || status.Term != term || status.Pending != 0 {
			t.Errorf("%s leads in term %d, %d pending", c.leader().member.ID, status.Term, status.Pending)
		}
		problems := strings.Join(status.Problems, "\n")
		if !strings.Contains(problems, "stays here though its disk has had no room for messages for ") || strings.Count(problems, ": it has no room for messages") != 2 {
			t.Errorf("problems %q do not say that leadership stays, and why", problems)
		}
		c.must(p.setDisk("all", parseArguments([]string{"well"})))
		time.Sleep(30 * time.Second)
		if status := first.broker.Status(); status.Pending != 30 || len(status.Problems) != 0 || status.Term != term {
			t.Errorf("after there is room: term %d, pending %d, problems %v", status.Term, status.Pending, status.Problems)
		}
	})
}

// Links that come and go must not move leadership every ten seconds.
func TestReach_waitsLongerEachTime(t *testing.T) {
	onThree(t, func(c *Cluster, p *player) {
		const total = 30 * time.Minute
		moves := 0
		leader := c.leader()
		for begin := time.Now(); time.Since(begin) < total; {
			c.network.set(cut, leader.member.ID, kafkaHost)
			time.Sleep(20 * time.Second)
			next := c.leader()
			if next != leader {
				moves++
			}
			c.network.set(open, leader.member.ID, kafkaHost)
			leader = next
			time.Sleep(5 * time.Second)
		}
		// Each node gives it away after 10 s and then only after longer than the cuts last.
		if moves == 0 || moves > 2*len(c.nodes) {
			t.Errorf("leadership moved %d times in %v", moves, total)
		}
	})
}

// Kafka is away for all. It answers the others when the leader asks them first, and the leader before
// they are asked again: then it answers everybody, and a new term would only repeat what is on its way.
func TestReach_staysWhenKafkaAnswersTheLeaderMeanwhile(t *testing.T) {
	onThree(t, func(c *Cluster, p *player) {
		others := func(first *node, state linkState) {
			for _, n := range c.nodes {
				if n != first {
					c.network.set(state, n.member.ID, kafkaHost)
				}
			}
		}
		stayed := 0
		// The leader asks when a look fails ten seconds after the first one that did: some 15 s after the cut.
		for asked := 14500 * time.Millisecond; asked < 16*time.Second; asked += 250 * time.Millisecond {
			first := c.leader()
			term := first.broker.Status().Term
			others(first, cut)
			c.network.set(cut, first.member.ID, kafkaHost)
			time.Sleep(9 * time.Second)
			others(first, open)
			time.Sleep(asked - 9*time.Second)
			others(first, silent)
			moved := c.leader() != first // it asked a moment earlier than most do, and Kafka was away
			c.network.set(open, first.member.ID, kafkaHost)
			time.Sleep(3 * time.Second) // in which the leader looks, and the others are asked again
			if err := first.broker.Ready(); err != nil && c.leader() == first {
				t.Fatalf("the leader is not ready though Kafka answers it: %v", err)
			}
			others(first, open)
			time.Sleep(20 * time.Second)
			if moved {
				continue
			}
			stayed++
			if c.leader() != first || first.broker.Status().Term != term {
				t.Errorf("leadership moved after %v though Kafka answered the leader", asked)
			}
		}
		if stayed == 0 {
			t.Error("leadership moved each time before Kafka answered the leader")
		}
	})
}
