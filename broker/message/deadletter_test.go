package message

import "testing"

func TestDeadLetter_namesItsOwnRecord(t *testing.T) {
	origin := Origin{"in.delay", 2, 40}
	letter := errorHeaders(origin, Problem{CodeMalformed, "why"})
	another := errorHeaders(Origin{"in.delay", 2, 39}, Problem{CodeMalformed, "why"})
	for name, test := range map[string]struct {
		headers []Header
		want    bool
	}{
		"a dead letter":                      {letter[:], true},
		"one that had headers":               {append([]Header{{"a", nil}}, letter[:]...), true},
		"one that was made from another one": {append(another[:], letter[:]...), true},
		"a record made from a dead letter":   {another[:], false},
		"a part of it":                       {letter[:4], false},
		"something behind it":                {append(letter[:], Header{"a", nil}), false},
		"nothing":                            {nil, false},
	} {
		if got := looksLikeDeadLetter(origin, test.headers); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
