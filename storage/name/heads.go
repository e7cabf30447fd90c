package name

// Heads are names that were added, told apart by their heads alone: it may take another name for one of
// them, but never misses one. Clear comes first.
type Heads struct {
	places []uint64 // open addressing, at most half of them taken; 0: free
}

// Clear makes it empty, with room for so many names.
func (s *Heads) Clear(most int) {
	size := 64
	for size < 2*most {
		size *= 2
	}
	if size > cap(s.places) {
		s.places = make([]uint64, size)
		return
	}
	s.places = s.places[:size]
	clear(s.places)
}

// Add adds a name and reports whether it may have been there before. There must be room.
func (s *Heads) Add(h *Hash) (before bool) {
	head := max(h.Head(), 1)
	for at := head; ; at++ {
		switch place := &s.places[at&uint64(len(s.places)-1)]; *place {
		case head:
			return true
		case 0:
			*place = head
			return false
		}
	}
}
