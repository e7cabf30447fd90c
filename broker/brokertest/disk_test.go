package brokertest

import (
	"testing"
	"time"
)

func TestVerbs_ofDisks(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		look func(t *testing.T, p *player)
	}{
		"slow": {`
at 10s disk n1 slow=2s
at 10s produce orders.delay deliver-after=1h
at 11s expect pending count=0
at 16s expect pending count=1
at 16s disk n1 well
at 17s produce orders.delay deliver-after=1h
at 18s expect pending count=2`, nil},
		"full": {`
at 10s disk n1 full
at 20s produce orders.delay deliver-after=1h
at 40s expect pending count=0
at 40s disk n1 well
at 80s expect pending count=1`, nil},
		"torn": {`
at 10s disk n1 slow=2s
at 10s disk n1 torn
at 10s produce orders.delay deliver-after=1h
at 11s kill n1
at 12s disk n1 well
at 12s start n1
at 20s expect pending count=1`, func(t *testing.T, p *player) {
			if p.nodes[0].files.lost == 0 {
				t.Error("nothing was lost that was not synced")
			}
		}},
		"config": {`
at 10s config n1 raft.heartbeat=450ms
at 10s produce orders.delay deliver-after=1h
at 11s stop n1
at 11s start n1`, func(t *testing.T, p *player) {
			if got := p.nodes[0].own.Raft.Heartbeat; got != 450*time.Millisecond || p.config.Raft.Heartbeat == got {
				t.Errorf("the node's heartbeat is %v", got)
			}
		}},
		"clock": {`
at 10s clock n1 step=+400ms
at 10s produce orders.delay deliver-after=2s
at 11.5s expect delivered orders count=0
at 11.8s expect delivered orders count=1
at 30s clock n1 well
at 40s clock n1 drift=20ms/s
at 40s produce orders.delay deliver-after=10s
at 49.7s expect delivered orders count=1
at 49.9s expect delivered orders count=2`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			played(t, "cluster nodes=1\n"+begin+test.text+"\n", func(p *player) {
				if test.look != nil {
					test.look(t, p)
				}
			})
		})
	}
}
