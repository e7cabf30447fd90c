package brokertest

import (
	"strings"
	"testing"
)

// Two Kafka brokers lead a target each, and one of them answers nothing for a while.
func TestStall_isFeltByWhatTheBrokerLeadsAlone(t *testing.T) {
	const text = `cluster nodes=1 brokers=2
at 0s create orders.delay partitions=2
at 0s create f% count=6
at 0s start all
at 5s produce orders.delay count=300 deliver-to=f% targets=6 deliver-after=3s spread=30s
at 12s stall kafka2
at 20s revive kafka2
`
	s, err := parseScript(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s.playAndLook(t, NewReport(), func(p *player) {
		led := make(map[string]bool)
		for _, f := range p.observer.ledger.Faults {
			led[f.Topic] = led[f.Topic] || f.Kind == "stall"
		}
		targets := 0 // that it leads: one time in 64 it is none of the six
		for topic, created := range p.observer.created {
			leads := false
			for _, partition := range p.kafka.PartitionInfos(topic) {
				leads = leads || partition.Leader == 1
			}
			if created && led[topic] != leads {
				t.Errorf("%s: a fault: %v, though kafka2 leads a partition of it: %v", topic, led[topic], leads)
			}
			if leads && strings.HasPrefix(topic, "f") {
				targets++
			}
		}
		p.pause(p.span("1m"))
		late := map[bool]int{}
		for _, d := range p.consume() {
			if d.At.UnixMilli()-d.Due > 1000 {
				late[led[d.Topic]]++
			}
		}
		if late[false] > 0 || late[true] == 0 && targets > 0 {
			t.Errorf("late were %d messages for the %d targets that the broker leads, and %d for others", late[true], targets, late[false])
		}
	})
}

func TestScript_refusesToStallWhatIsNoBroker(t *testing.T) {
	for _, line := range []string{"stall n1", "stall kafka3", "stall orders", "revive kafka3"} {
		text := "cluster brokers=2\nat 0s produce orders.delay deliver-after=1s\nat 1s " + line
		if _, err := parseScript(strings.NewReader(text)); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}
