package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What fails because the node stops is no news: not that it accepts no connections, nor that those it had end.
func TestClose_warnsOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := map[string]*lines{"n1": {}, "n2": {}, "n3": {}}
		c := newCluster(t, 3, func(cfg *Config) { cfg.Logger = logs[cfg.NodeID].logger() })
		c.open("n1", "n2", "n3")
		leader := c.leader()
		time.Sleep(time.Second) // heartbeats run
		for _, id := range []string{otherThan(c, leader), leader.cfg.NodeID} {
			before := len(logs[id].String())
			c.close(id)
			if said := logs[id].String()[before:]; strings.Contains(said, "level=WARN") || strings.Contains(said, "level=ERROR") {
				t.Errorf("the leader was %s, and %s said at its end:\n%s", leader.cfg.NodeID, id, said)
			}
		}
	})
}
