package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/member"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

func TestAdvise_namesTheCommandWhereOthersHaveWhatIsLost(t *testing.T) {
	var one, three config.Config
	one.Node.ID, three.Node.ID = "n3", "n3"
	one.Cluster.Members = []config.Member{{ID: "n3"}}
	three.Cluster.Members = []config.Member{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}
	const alone = ": mount the same disk again, never an older copy of it, unless nothing else is left: it delivers again what was delivered since, and lacks what came since"
	for _, tt := range []struct {
		err           error
		alone, others string // what is added in a cluster of one, of three
	}{
		{raftfsm.ErrDamaged, alone, ": mount the same disk again, never an older copy of it, or empty the directory and run `carillon cluster replace n3`"},
		{storage.ErrCorrupt, alone, ": mount the same disk again, never an older copy of it, or empty the directory and run `carillon cluster replace n3`"},
		{member.ErrOtherLog, "", ", or empty the directory and run `carillon cluster replace n3`"},
		{node.ErrNoRoomToReceive, "", ", or empty the directory and run `carillon cluster replace n3`"},
		{member.ErrConfig, "", ""},
		{errors.New("anything else"), "", ""},
	} {
		err := fmt.Errorf("open: %w", tt.err)
		for i, c := range []config.Config{one, three} {
			got, want := advise(c)(err), err.Error()+[]string{tt.alone, tt.others}[i]
			if got.Error() != want || !errors.Is(got, tt.err) {
				t.Errorf("%d members: got %q, want %q", len(c.Cluster.Members), got, want)
			}
		}
	}
	if got, want := advise(three)(member.ErrOtherDisk).Error(), member.ErrOtherDisk.Error()+": run `carillon cluster replace n3` against one of the others;"+
		" if a majority of the members has lost its disks, nothing replaces them: mount the same disks again"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := advise(three)(member.ErrReplaced).Error(), member.ErrReplaced.Error()+": stop this node, empty the directory and start it again,"+
		" it joins and copies the schedule"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
