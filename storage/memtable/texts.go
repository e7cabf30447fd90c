package memtable

// texts keeps each text once. The zero value is empty.
type texts struct {
	all    []string
	places map[string]uint32
}

// place returns the text's place, and one more.
func (t *texts) place(text string) uint32 {
	if n := len(t.all); n > 0 && t.all[n-1] == text {
		return uint32(n)
	}
	place, ok := t.places[text]
	if !ok {
		if t.places == nil {
			t.places = make(map[string]uint32)
		}
		t.all = append(t.all, text)
		place = uint32(len(t.all))
		t.places[text] = place
	}
	return place
}

// kept returns the text as it is kept here, or as it is given.
func (t *texts) kept(text string) string {
	if place, ok := t.places[text]; ok {
		return t.all[place-1]
	}
	return text
}
