package memtable

import "hash/maphash"

// texts keeps each text once. The zero value is empty.
//
// Names of targets are free text, a hundred thousand at times. A Go map from them to their places
// would take six times the memory of places.
type texts struct {
	all []string
	// places is a hash table of three quarters as many texts as places, at most, a power of two; no
	// text ever leaves it. A text belongs where its hash says, or at the next place that is free.
	// There is its place in all, and one more; 0: free. The seed is this table's own: users choose
	// texts, and nothing that is written or replicated depends on where they are.
	places []uint32
	seed   maphash.Seed
}

const leastPlaces = 8

// place returns the text's place, and one more.
func (t *texts) place(text string) uint32 {
	if n := len(t.all); n > 0 && t.all[n-1] == text {
		return uint32(n)
	}
	if 4*len(t.all) >= 3*len(t.places) {
		t.grow()
	}
	at := t.find(text)
	if t.places[at] == 0 {
		t.all = append(t.all, text)
		t.places[at] = uint32(len(t.all))
	}
	return t.places[at]
}

// find returns where the text is in places, or where it would be.
func (t *texts) find(text string) int {
	last := len(t.places) - 1
	at := int(maphash.String(t.seed, text)) & last
	for p := t.places[at]; p != 0 && t.all[p-1] != text; p = t.places[at] {
		at = (at + 1) & last
	}
	return at
}

func (t *texts) grow() {
	if t.places == nil {
		t.seed = maphash.MakeSeed()
	}
	t.places = make([]uint32, max(leastPlaces, 2*len(t.places)))
	for i, text := range t.all {
		t.places[t.find(text)] = uint32(i + 1)
	}
}

// kept returns the text as it is kept here, or as it is given.
func (t *texts) kept(text string) string {
	if len(t.places) > 0 {
		if p := t.places[t.find(text)]; p != 0 {
			return t.all[p-1]
		}
	}
	return text
}
