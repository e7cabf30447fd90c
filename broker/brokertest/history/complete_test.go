package history

import (
	"errors"
	"math"
	"testing"
)

// A message that was seen and never came has no value that is known: that nothing was done of a cancel, which has
// none either, says nothing about it.
func TestHistory_excusesWhatIsInDoubtAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		undone string
		doubt  Verb
		want   error
	}{
		"a change in doubt, and a cancel that was not done": {"", Change, nil},
		"a cancel in doubt": {"other", Cancel, errIllegal},
	} {
		c := NewClients("orders.delay", 1)
		c.undone[test.undone] = true
		c.calls = []Call{{ID: "id-1", Verb: test.doubt, To: math.MaxInt64}, {ID: "id-1", Verb: Get, Seq: 15}}
		if _, err := c.History(nil, nil); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
