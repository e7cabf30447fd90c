package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A node that has lost its disk comes back with a million pending, while load goes on.
func TestClusterReplace_bringsALostNodeBack(t *testing.T) {
	const pending, load = 1_000_000, 20_000
	k, c, l := newStage(t, 1, dirs(t, 3)...)
	c.preload(k, pending)

	lost := c.nodes[2]
	if c.leader() == lost {
		lost = c.nodes[0]
	}
	lost.process.kill()
	if err := os.RemoveAll(lost.Data); err != nil {
		t.Fatal(err)
	}
	lost.process = start(t, "carillon "+lost.ID, nil, c.binary, "serve", "--config", lost.config)
	await(t, patience, "the empty node names the way back", func() bool {
		return strings.Contains(string(tail(lost.process.log, 64<<10)), "carillon cluster replace "+lost.ID)
	})
	if lost.ready() {
		t.Error("the empty node says that it is ready")
	}

	loaded := l.load(k, 0, load, 1000, 2*time.Second)
	run(t, ".", nil, c.binary, "cluster", "replace", lost.ID, "--api", c.leader().API)
	await(t, 2*patience, "the replaced node is ready and has all that is pending", func() bool {
		s, err := lost.status()
		return err == nil && s.Pending >= pending && lost.ready()
	})
	<-loaded
	await(t, patience, "the load is delivered", func() bool { return l.delivered() == load })
	c.awaitPending(patience, pending)
	l.verify(t, load, 1, c.elections())
}
