package wheel

const (
	pageBits = 12
	pageSize = 1 << pageBits
	maxPages = 1 << (32 - pageBits)

	// wornOut is the even generation after which an id is not used again before
	// its whole page starts a new epoch.
	wornOut = 1<<16 - 2
)

// A slab keeps the timers themselves, by id. It holds pointers only if T does.
type slab[T any] struct {
	pages []page[T]
	fresh uint64 // ids from here on were never used; id 0 is none
	free  uint32 // first of the freed ids, each naming the next
}

// A page's epoch makes the 15 bits of generation last: it goes up when all ids
// of the page are worn out, and is part of every handle.
type page[T any] struct {
	entries *[pageSize]entry[T]
	epoch   uint16
	worn    uint16 // ids worn out in this epoch
}

// An entry is live while its generation is odd:
//
//	meta   63                        16 15         0
//	      +----------------------------+------------+
//	      | deadline, or next free id  | generation |
//	      +----------------------------+------------+
//
// The value comes first so that an empty T costs no padding.
type entry[T any] struct {
	value T
	meta  uint64
}

func (e *entry[T]) when() uint64       { return e.meta >> 16 }
func (e *entry[T]) generation() uint16 { return uint16(e.meta) }
func (e *entry[T]) live() bool         { return e.meta&1 != 0 }

func (e *entry[T]) setWhen(when uint64) { e.meta = when<<16 | e.meta&0xffff }

// retire makes every handle of the entry stale and lets go of its value.
func (e *entry[T]) retire() {
	e.meta++ // generation wornOut+1 is never live, so this does not carry
	var zero T
	e.value = zero
}

func (s *slab[T]) at(id uint32) *entry[T] {
	return &s.pages[id>>pageBits].entries[id%pageSize]
}

// handle returns the handle of id, which names a timer if the entry is live.
func (s *slab[T]) handle(id uint32) Handle {
	return newHandle(id, s.pages[id>>pageBits].epoch, s.at(id).generation())
}

// find returns the entry h names, or nil when h is stale or zero.
func (s *slab[T]) find(h Handle) *entry[T] {
	id := h.id()
	if i := id >> pageBits; int(i) < len(s.pages) && h&1 != 0 {
		p := &s.pages[i]
		if e := &p.entries[id%pageSize]; uint16(e.meta) == h.generation() && p.epoch == h.epoch() {
			return e
		}
	}
	return nil
}

// vacant returns the id to occupy next, or 0 when there is none left.
func (s *slab[T]) vacant() uint32 {
	if s.free != 0 {
		return s.free
	}
	return s.freshID()
}

// occupy makes the entry of a vacant id live.
func (s *slab[T]) occupy(id uint32, when uint64, v T) Handle {
	p := &s.pages[id>>pageBits]
	e := &p.entries[id%pageSize]
	s.free = uint32(e.when()) // of a fresh id 0, as s.free was
	generation := uint16(e.meta + 1)
	*e = entry[T]{v, when<<16 | uint64(generation)}
	return newHandle(id, p.epoch, generation)
}

// freshID returns an id that was never used, or not in this epoch, or 0 when
// there is none left.
func (s *slab[T]) freshID() uint32 {
	if s.fresh&(pageSize-1) == 0 {
		if s.renew() {
			return s.free
		}
		if len(s.pages) == maxPages {
			return 0
		}
		s.pages = append(s.pages, page[T]{entries: new([pageSize]entry[T])})
		if s.fresh == 0 { // id 0 is none, and so counts as worn out
			s.fresh = 1
			s.pages[0].worn = 1
		}
	}
	s.fresh++
	return uint32(s.fresh - 1)
}

// release gives the id of a retired entry back once nothing refers to it. A
// worn-out one rests until all of its page is worn out.
func (s *slab[T]) release(id uint32) {
	e := s.at(id)
	if e.generation() == wornOut {
		s.pages[id>>pageBits].worn++
		return
	}
	e.meta = uint64(s.free)<<16 | uint64(e.generation())
	s.free = id
}

// renew starts the next epoch of a page that is worn out, and reports whether
// there is one. After 2^16 epochs a page rests for ever.
func (s *slab[T]) renew() bool {
	for i := range s.pages {
		p := &s.pages[i]
		if p.worn < pageSize || p.epoch == 1<<16-1 {
			continue
		}
		p.epoch++
		p.worn = 0
		for j := range p.entries {
			p.entries[j].meta = 0
			if id := uint32(i<<pageBits + j); id != 0 {
				s.release(id)
			}
		}
		if i == 0 {
			p.worn = 1
		}
		return true
	}
	return false
}

// releaseAll gives every id back; no entry is live and nothing refers to any.
func (s *slab[T]) releaseAll() {
	s.free = 0
	for i := range s.pages {
		s.pages[i].worn = 0
	}
	if len(s.pages) > 0 {
		s.pages[0].worn = 1
	}
	for id := uint64(1); id < s.fresh; id++ {
		s.release(uint32(id))
	}
}
