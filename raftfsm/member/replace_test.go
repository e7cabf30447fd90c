package member

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestReplacing(t *testing.T) {
	voter := func(raftID string) Server { return Server{RaftID: raftID, Voter: true} }
	three := []Server{voter("n1"), voter("n2"), voter("n3@7")}
	for _, tt := range []struct {
		name    string
		servers []Server
		answer  []string // Raft ids
		want    Replacement
		refuses string // a part of the text
	}{
		{"silent, the others answer", three, []string{"n1", "n2"}, Replacement{Remove: "n3@7"}, ""},
		{"it answers", three, []string{"n1", "n2", "n3@7"}, Replacement{}, "it answers: stop it"},
		{"another is silent too", three, []string{"n1"}, Replacement{}, "only 1 of the other 2 voters answer"},
		{"another is silent, and no voter", []Server{voter("n1"), {RaftID: "n2@5"}, voter("n3")}, []string{"n1"}, Replacement{Remove: "n3"}, ""},
		{"two of five are silent", append(slices.Clone(three), voter("n4"), voter("n5")), []string{"n1", "n2", "n4"}, Replacement{Remove: "n3@7"}, ""},
		{"three of five are silent", append(slices.Clone(three), voter("n4"), voter("n5")), []string{"n1", "n2"}, Replacement{}, "only 2 of the other 4"},
		{"removed, not added yet", three[:2], []string{"n1", "n2"}, Replacement{}, ""},
		{"on its way already", []Server{voter("n1"), voter("n2"), {RaftID: "n3@9"}}, []string{"n1", "n2", "n3@9"}, Replacement{Done: true}, ""},
	} {
		got, err := Replacing("n3", tt.servers, func(raftID string) bool { return slices.Contains(tt.answer, raftID) })
		if got != tt.want || (err == nil) != (tt.refuses == "") || err != nil && (!errors.Is(err, ErrReplace) || !strings.Contains(err.Error(), tt.refuses)) {
			t.Errorf("%s: %+v, %v, want %+v %s", tt.name, got, err, tt.want, tt.refuses)
		}
	}
}

func TestSucceeds_comparesTheLogIndexes(t *testing.T) {
	for _, tt := range []struct {
		newer, older string
		want         bool
	}{
		{"n3@57", "n3", true}, {"n3@102", "n3@57", true}, {"n3@57", "n3@102", false},
		{"n3", "n3", false}, {"n3@57", "n3@57", false}, {"n2@57", "n3", false},
	} {
		if got := Succeeds(tt.newer, tt.older); got != tt.want {
			t.Errorf("%s after %s: %v", tt.newer, tt.older, got)
		}
	}
	if id := NextRaftID("n3", 57); Of(id) != "n3" || !Succeeds(NextRaftID("n3", 58), id) {
		t.Errorf("the id at 57 is %s", id)
	}
}
