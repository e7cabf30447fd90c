package member

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who founds a cluster is the process that answers at its address, and no other of its id.
func TestConfirm(t *testing.T) {
	cfg := Config{NodeID: "n3", Members: []Member{{ID: "n1", API: "a:2"}, {ID: "n3", API: "c:2"}}}
	me := Identity{NodeID: "n3", Incarnation: "i3"}
	first := Decision{Found: true, First: true}
	for _, tt := range []struct {
		said Standing
		err  error
		want Decision // Wait: a part of the text
	}{
		{Standing{NodeID: "n3", Incarnation: "i3"}, nil, first},
		{Standing{NodeID: "n3", Incarnation: "other"}, nil, Decision{Remedy: true, Wait: errors.New(`another process, n3, answers at "c:2"`)}},
		{Standing{NodeID: "n1", Incarnation: "i1"}, nil, Decision{Remedy: true, Wait: errors.New(`another process, n1, answers at "c:2"`)}},
		{Standing{}, errors.New("refused"), Decision{Wait: errors.New(`its own api address in cluster.members, "c:2": refused`)}},
	} {
		got := first.Confirm(me, cfg, tt.said, tt.err)
		if got.Found != tt.want.Found || got.First != tt.want.First || got.Remedy != tt.want.Remedy || !says(got.Wait, tt.want.Wait) {
			t.Errorf("%+v, %v: %+v", tt.said, tt.err, got)
		}
	}
}

func TestDecide(t *testing.T) {
	members := []Member{{ID: "n1", Raft: "a:1", API: "a:2"}, {ID: "n2", Raft: "b:1", API: "b:2"}, {ID: "n3", Raft: "c:1", API: "c:2"}}
	cfg := Config{NodeID: "n3", ClusterName: "c", Members: members, Bootstrap: true}
	me := Identity{NodeID: "n3", ClusterName: "c", Incarnation: "i3"}
	empty := func(id string) Standing {
		return Standing{NodeID: id, ClusterName: "c", Incarnation: "i" + id[1:], Empty: true, Members: members}
	}
	lives := func(id, n3 string, servers ...Server) Standing {
		s := empty(id)
		s.Empty = false
		s.Founders = map[string]string{"n1": "i1", "n2": "i2", "n3": n3}
		s.Servers = append([]Server{{RaftID: "n1", Voter: true}, {RaftID: "n2", Voter: true}}, servers...)
		return s
	}
	old, joined := Server{RaftID: "n3", Voter: true}, Server{RaftID: "n3@40"}
	votes := Server{RaftID: "n3@40", Voter: true}
	other := empty("n1")
	other.ClusterName = "d"
	starting := lives("n2", "i3")
	starting.Servers = nil
	differs := empty("n1")
	differs.Members = members[:2]
	moved := func(s Standing) Standing {
		s.Members = slices.Clone(members)
		s.Members[1].API = "b:9"
		return s
	}

	for _, tt := range []struct {
		name    string
		answers []Standing
		want    Decision // Wait: a part of the text
	}{
		{"nobody answers", nil, Decision{Wait: errors.New(`no answer from n1 at "a:2", n2 at "b:2": start it, or correct its api address in cluster.members`)}},
		{"one is silent", []Standing{empty("n1")}, Decision{Wait: errors.New(`no answer from n2 at "b:2": start it`)}},
		{"all are empty", []Standing{empty("n1"), empty("n2")}, Decision{Found: true, First: true}},
		{"founded with this disk", []Standing{lives("n1", "i3", old)}, Decision{Found: true}},
		{"founded with this disk, one still empty", []Standing{lives("n1", "i3", old), empty("n2")}, Decision{Found: true}},
		{"founded with this disk, one is starting", []Standing{lives("n1", "i3", old), starting}, Decision{Found: true}},
		{"founded with this disk, removed since", []Standing{lives("n1", "i3"), lives("n2", "i3", old)}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"founded with this disk, replaced since", []Standing{lives("n1", "i3", joined), lives("n2", "i3", joined)}, Decision{RaftID: "n3@40"}},
		{"founded with another disk", []Standing{lives("n1", "gone", old), lives("n2", "gone", old)}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"founded without us answering", []Standing{lives("n1", "gone", old)}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"removed, not added yet", []Standing{lives("n1", "gone"), lives("n2", "gone")}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"replaced, one knows", []Standing{lives("n1", "gone", joined)}, Decision{Wait: errors.New(`1 of 2 members know yet; no answer from n2 at "b:2"`)}},
		{"replaced, one knows, one is empty", []Standing{lives("n1", "gone", joined), empty("n2")}, Decision{Wait: errors.New("1 of 2 members know yet")}},
		{"replaced, one is behind", []Standing{lives("n1", "gone", joined), lives("n2", "gone", old)}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"replaced", []Standing{lives("n1", "gone", joined), lives("n2", "gone", joined)}, Decision{RaftID: "n3@40"}},
		{"wiped with the majority", []Standing{lives("n1", "gone", old), empty("n2")}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"wiped again after it voted", []Standing{lives("n1", "gone", votes), lives("n2", "gone", votes)}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"wiped again, one has not seen the vote", []Standing{lives("n1", "gone", votes), lives("n2", "gone", joined)}, Decision{Remedy: true, Wait: ErrOtherDisk}},
		{"another cluster", []Standing{other, empty("n2")}, Decision{Remedy: true, Wait: errors.New(`"d"`)}},
		{"other members", []Standing{differs, empty("n2")}, Decision{Remedy: true, Wait: errors.New("cluster.members")}},
		{"another api address", []Standing{moved(empty("n1")), empty("n2")}, Decision{Remedy: true, Wait: errors.New(`cluster.members[n2].api: "b:2", but n1 is configured with "b:9": make`)}},
		{"another api address, one is silent", []Standing{moved(empty("n1"))}, Decision{Remedy: true, Wait: errors.New("cluster.members[n2].api")}},
		{"founded with this disk, another api address since", []Standing{moved(lives("n1", "i3", old))}, Decision{Found: true}},
		{"replaced, another api address since", []Standing{moved(lives("n1", "gone", joined)), lives("n2", "gone", joined)}, Decision{RaftID: "n3@40"}},
	} {
		answers := map[string]Standing{}
		for _, a := range tt.answers {
			answers[a.NodeID] = a
		}
		got := Decide(me, cfg, answers)
		if got.Found != tt.want.Found || got.RaftID != tt.want.RaftID || got.Remedy != tt.want.Remedy ||
			!says(got.Wait, tt.want.Wait) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}

	cfg.Bootstrap = false
	if got := Decide(me, cfg, map[string]Standing{"n1": empty("n1"), "n2": empty("n2")}); got.Found || !says(got.Wait, errors.New("cluster.bootstrap")) {
		t.Errorf("without bootstrap: %+v", got)
	}
}

// says reports whether got is want, or tells what it does.
func says(got, want error) bool {
	if got == nil || want == nil {
		return got == want
	}
	return errors.Is(got, want) || !errors.Is(got, ErrOtherDisk) && strings.Contains(got.Error(), want.Error())
}
