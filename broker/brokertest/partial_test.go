package brokertest

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// besideThreeKafkaBrokers runs three nodes with messages that are due in twenty seconds. One Kafka broker leads the delay topic,
// and another one, whose host is given to play, the target.
func besideThreeKafkaBrokers(t *testing.T, play func(c *Cluster, p *player, target string)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3", "brokers=3"}))
		defer c.stop()
		p := &player{Cluster: c, start: time.Now()}
		for topic, leader := range map[string]int32{"orders.delay": 0, "orders": 1} {
			c.must(p.createTopic(topic, arguments{}))
			for i := range c.kafka.PartitionInfos(topic) {
				c.must(c.kafka.MoveTopicPartition(topic, int32(i), leader))
			}
		}
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		time.Sleep(10 * time.Second)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=20", "deliver-after=30s"})))
		time.Sleep(10 * time.Second)
		play(c, p, c.kafkaHosts()[1])
	})
}

// All that the leader reads is there, and what it writes is not.
func TestReach_movesLeadershipToAMemberThatReachesTheTargets(t *testing.T) {
	for name, broken := range map[string]linkState{"cut": cut, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
				first := c.leader()
				c.network.set(broken, first.member.ID, target)
				time.Sleep(40 * time.Second) // ten seconds after the first was due
				second := c.leader()
				if second == first {
					t.Fatalf("%s still leads 20 s after it could not write to the target: %v", first.member.ID, first.broker.Status().Problems)
				}
				if pending := second.broker.Status().Pending; pending != 0 {
					t.Errorf("%d messages wait with the new leader", pending)
				}
				if problems := strings.Join(first.broker.Status().Problems, "\n"); !strings.Contains(problems, "the Kafka brokers "+c.kafka.ListenAddrs()[1]) || !strings.Contains(problems, "reaches more") {
					t.Errorf("problems of the old leader %q do not say why it gave leadership away", problems)
				}
				time.Sleep(2 * time.Minute)
				if len(first.broker.Status().Problems) == 0 {
					t.Errorf("no problem, though %s does not reach %s", first.member.ID, target)
				}
				c.network.set(open, first.member.ID, target)
				time.Sleep(time.Minute)
				if problems := first.broker.Status().Problems; len(problems) != 0 {
					t.Errorf("problems %v though all brokers answer", problems)
				}
				if c.leader() != second {
					t.Error("leadership moved back without need")
				}
			})
		})
	}
}

func TestReach_staysWhenNobodyReachesTheTargets(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		first := c.leader()
		term := first.broker.Status().Term
		for _, n := range c.nodes {
			c.network.set(silent, n.member.ID, target)
		}
		time.Sleep(5 * time.Minute)
		status := first.broker.Status()
		if c.leader() != first || status.Term != term {
			t.Errorf("%s leads in term %d, want %s in %d", c.leader().member.ID, status.Term, first.member.ID, term)
		}
		problems := strings.Join(status.Problems, "\n")
		if !strings.Contains(problems, "stays here though the Kafka brokers "+c.kafka.ListenAddrs()[1]) || strings.Count(problems, ": it reaches no Kafka broker that this node does not reach") != 2 {
			t.Errorf("problems %q do not say that leadership stays, and why", problems)
		}
		for _, n := range c.nodes {
			c.network.set(open, n.member.ID, target)
		}
		time.Sleep(time.Minute)
		if status := first.broker.Status(); status.Pending != 0 || len(status.Problems) != 0 || status.Term != term {
			t.Errorf("after the broker is back: pending %d, problems %v, term %d", status.Pending, status.Problems, status.Term)
		}
	})
}

// Two nodes that reach one of the brokers each have nothing to win from each other.
func TestReach_staysWhereOthersReachOtherKafkaBrokers(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		first := c.leader()
		term := first.broker.Status().Term
		for _, n := range c.nodes {
			if n == first {
				c.network.set(cut, n.member.ID, target)
			} else {
				c.network.set(cut, n.member.ID, c.kafkaHosts()[2])
			}
		}
		time.Sleep(30 * time.Minute)
		if c.leader() != first || first.broker.Status().Term != term {
			t.Errorf("%s leads in term %d, want %s in %d", c.leader().member.ID, c.leader().broker.Status().Term, first.member.ID, term)
		}
	})
}

// A Kafka broker that starts anew is away for all. Nobody has connected to it since, and so it counts as away for a while.
func TestReach_staysWhenAKafkaBrokerStartsAnew(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		first := c.leader()
		term := first.broker.Status().Term
		for range 10 {
			for _, n := range c.nodes {
				c.network.set(cut, n.member.ID, target)
			}
			time.Sleep(8 * time.Second)
			for _, n := range c.nodes {
				c.network.set(open, n.member.ID, target)
			}
			time.Sleep(2 * time.Minute)
		}
		status := first.broker.Status()
		if c.leader() != first || status.Term != term || status.Pending != 0 || len(status.Problems) != 0 {
			t.Errorf("%s leads in term %d, pending %d, problems %v", c.leader().member.ID, status.Term, status.Pending, status.Problems)
		}
	})
}

// A link that comes and goes must not move leadership each time.
func TestReach_movesRarelyForAKafkaBrokerThatComesAndGoes(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		const total = 2 * time.Hour
		moves := 0
		leader := c.leader()
		for begin := time.Now(); time.Since(begin) < total; {
			c.network.set(cut, leader.member.ID, target)
			for range 30 {
				c.must(p.produce("orders.delay", parseArguments([]string{"count=1", "deliver-after=1s"})))
				time.Sleep(time.Second)
			}
			next := c.leader()
			if next != leader {
				moves++
			}
			c.network.set(open, leader.member.ID, target)
			leader = next
			time.Sleep(5 * time.Second)
		}
		if moves == 0 || moves > 2*len(c.nodes) {
			t.Errorf("leadership moved %d times in %v", moves, total)
		}
	})
}

// Nothing was due since the leader leads, and its first message would wait.
func TestReach_movesAnIdleLeader(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		first := c.leader()
		c.network.set(cut, first.member.ID, target)
		time.Sleep(10 * time.Second) // before what waits is due
		if c.leader() != first {
			t.Fatal("moved before it can know")
		}
		c.must(p.produce("orders.delay", parseArguments([]string{"count=1", "deliver-after=4h"})))
		time.Sleep(5 * time.Minute)
		if c.leader() == first {
			t.Errorf("%s still leads: %v", first.member.ID, first.broker.Status().Problems)
		}
	})
}

// The only configured broker is the one that the leader does not reach. It knows others, and asks by these.
func TestReach_knowsWhatItReachesByAllWaysToKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments([]string{"nodes=3", "brokers=3"}))
		defer c.stop()
		p := &player{Cluster: c, start: time.Now()}
		for topic, leader := range map[string]int32{"orders.delay": 0, "orders": 1, "others": 2} {
			c.must(p.createTopic(topic, arguments{}))
			for i := range c.kafka.PartitionInfos(topic) {
				c.must(c.kafka.MoveTopicPartition(topic, int32(i), leader))
			}
		}
		c.config.Kafka.Brokers = c.kafka.ListenAddrs()[1:2]
		c.must(p.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		time.Sleep(10 * time.Second)
		c.must(p.produce("orders.delay", parseArguments([]string{"count=20", "deliver-after=30s"})))
		time.Sleep(10 * time.Second)
		first := c.leader()
		hosts := c.kafkaHosts()
		for _, n := range c.nodes {
			if n == first {
				c.network.set(cut, n.member.ID, hosts[1])
			} else {
				c.network.set(cut, n.member.ID, hosts[2])
			}
		}
		time.Sleep(10 * time.Minute)
		if l := c.leader(); l != first {
			t.Fatalf("moved to %s, which does not reach all that %s reaches: %v", l.member.ID, first.member.ID, first.broker.Status().Problems)
		}
		for _, n := range c.nodes {
			c.network.set(open, n.member.ID, hosts[2])
		}
		time.Sleep(10 * time.Minute)
		if l := c.leader(); l == first || l.broker.Status().Pending != 0 {
			t.Errorf("%s leads, %d pending, though others reach all: %v", l.member.ID, l.broker.Status().Pending, first.broker.Status().Problems)
		}
	})
}

// What the status says of a full disk ends with it, though a Kafka broker is away for all.
func TestReach_blamesADiskNoLongerThanItIsFull(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		for _, n := range c.nodes {
			c.network.set(cut, n.member.ID, c.kafkaHosts()[2])
		}
		first := c.leader()
		c.must(p.setDisk(first.member.ID, parseArguments([]string{"full"})))
		c.must(p.produce("orders.delay", parseArguments([]string{"count=30", "deliver-after=5h"})))
		time.Sleep(40 * time.Second)
		if c.leader() == first {
			t.Fatalf("%s still leads with a full disk: %v", first.member.ID, first.broker.Status().Problems)
		}
		c.must(p.setDisk(first.member.ID, parseArguments([]string{"well"})))
		time.Sleep(time.Minute)
		if problems := first.broker.Status().Problems; len(problems) > 0 {
			t.Errorf("problems %q though there is room again", problems)
		}
	})
}

// A full disk keeps nobody from delivering. Who reaches fewer Kafka brokers would deliver less.
func TestReach_staysWithAFullDiskWhereOthersReachLess(t *testing.T) {
	besideThreeKafkaBrokers(t, func(c *Cluster, p *player, target string) {
		first := c.leader()
		for _, n := range c.nodes {
			if n != first {
				c.network.set(cut, n.member.ID, target)
			}
		}
		c.must(p.setDisk(first.member.ID, parseArguments([]string{"full"})))
		time.Sleep(5 * time.Minute)
		status := first.broker.Status()
		if c.leader() != first || status.Pending != 0 {
			t.Errorf("%s leads, %d pending: %v", c.leader().member.ID, status.Pending, status.Problems)
		}
	})
}
