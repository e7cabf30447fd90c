package wheel

// Handle names one timer of one wheel. It stays invalid for ever once that
// timer has fired, was cancelled, was drained or was moved to another handle:
// no later timer gets the same one. The zero Handle names no timer. A handle
// means nothing in another process or on disk, and must not be given to another
// wheel, where it may name a timer by chance: whoever drains a wheel into a new
// one has to replace all handles.
type Handle uint64

// Bits of a handle, the state as it was when the timer was added:
//
//	63            32 31        16 15         0
//	+---------------+------------+------------+
//	|      id       | page epoch |   state    |
//	+---------------+------------+------------+
func newHandle(id uint32, epoch, s state) Handle {
	return Handle(id)<<32 | Handle(epoch)<<16 | Handle(s)
}

func (h Handle) id() uint32   { return uint32(h >> 32) }
func (h Handle) epoch() state { return state(h >> 16) }
func (h Handle) state() state { return state(h) }

const (
	pageBits = 12
	pageSize = 1 << pageBits
	maxPages = 1 << (32 - pageBits)
)

// A slab keeps the timers themselves, by id. It holds pointers only if T does.
//
// Ids are handed out in this order: those freed last, which are ready; the rest
// of the page begun; those packed away; the next page.
type slab[T any] struct {
	pages []*page[T]
	next  uint64 // id to use next of the page begun; a multiple of pageSize when that has no more
	free  freeIDs
}

// A page holds 4,096 timers, each of their properties in an array of its own: to
// cancel one, its state is all that has to be read, and those of a
// million fit into a processor's second cache, as whole timers do not.
//
// The first of each page is none: its place is the page's own. A page of
// eight-byte values is 64 KB and not a byte more, which an allocation would
// round up by another 8 KB.
type page[T any] struct {
	state [pageSize]state // of the first, the epoch of the page
	value [pageSize]T
	low   [pageSize]uint32 // lower half of the deadline; of the first, how many ids rest
	high  [pageSize]uint16 // upper half
}

// A state tells of one timer whether it is pending, and how often its id was
// used before:
//
//	15                 2    1       0
//	+------------------+-------+------+
//	|    generation    | aside | live |
//	+------------------+-------+------+
//
// Aside are those whose deadline has to be looked up: it may be later than their
// hint says (postponed), or before the cursor (behind).
type state uint16

const (
	live  state = 1
	aside state = 2
	use   state = 4 // one generation

	// wornOut is the state of an id that rests until its page starts a new epoch.
	wornOut = ^(live | aside)

	// Epochs are even, so that the first of a page never seems to be live.
	nextEpoch state = 2
	lastEpoch       = ^live
)

// ended is the state of the same id when its timer is gone.
func (s state) ended() state { return s&^(live|aside) + use }

func (p *page[T]) epoch() state { return p.state[0] }

func (p *page[T]) when(i uint32) uint64 { return uint64(p.high[i])<<32 | uint64(p.low[i]) }

func (p *page[T]) setWhen(i uint32, when uint64) {
	p.low[i] = uint32(when)
	p.high[i] = uint16(when >> 32)
}

// retire makes every handle of a timer stale and lets go of its value.
func (p *page[T]) retire(i uint32) {
	p.state[i] = p.state[i].ended()
	var zero T
	p.value[i] = zero
}

// at returns the page of an id, and where in it the timer is.
func (s *slab[T]) at(id uint32) (p *page[T], i uint32) {
	return s.pages[id>>pageBits], id % pageSize
}

func (s *slab[T]) isLive(id uint32) bool {
	p, i := s.at(id)
	return p.state[i]&live != 0
}

func (s *slab[T]) when(id uint32) uint64 {
	p, i := s.at(id)
	return p.when(i)
}

// handle returns the handle of id, which names a timer if that is live.
func (s *slab[T]) handle(id uint32) Handle {
	p, i := s.at(id)
	return newHandle(id, p.epoch(), p.state[i]&^aside)
}

// find returns where the timer is that h names, or no page when h is stale or
// zero. It is as large as what the compiler inlines.
func (s *slab[T]) find(h Handle) (p *page[T], i uint32) {
	k, i := h.id()>>pageBits, h.id()%pageSize
	if int(k) < len(s.pages) && h.state()&live != 0 {
		if p = s.pages[k]; p.state[0] == h.epoch() && p.state[i]&^aside == h.state() {
			return p, i
		}
	}
	return nil, 0
}

// take returns an id to use, or 0 when none is at hand and prepare has to look for one.
func (s *slab[T]) take() (id uint32) {
	if id = s.free.take(); id == 0 && s.next%pageSize != 0 {
		id = uint32(s.next)
		s.next++
	}
	return id
}

// prepare makes sure that the next id to take is one that is not worn out, or
// reports false when there is none left.
func (s *slab[T]) prepare(chunks *chunkPool) bool {
	for {
		id := s.take()
		if id == 0 {
			if !s.free.unpack(chunks) && !s.open() {
				return false
			}
			continue
		}
		p, i := s.at(id)
		if p.state[i] != wornOut {
			s.free.put(hint(id), chunks)
			return true
		}
		s.rest(id, chunks)
	}
}

// open begins with the ids of the next page, or reports false when there is none.
func (s *slab[T]) open() bool {
	k := int(s.next >> pageBits)
	if k == maxPages {
		return false
	}
	if k == len(s.pages) {
		s.pages = grow(s.pages, maxPages)
	}
	s.next++
	return true
}

// rest counts id, which is worn out, among those of its page that rest. When all do,
// none is pending and none has a hint: the page starts its next epoch, and its ids
// are free. After 2^15 epochs a page rests for ever.
func (s *slab[T]) rest(id uint32, chunks *chunkPool) {
	p, _ := s.at(id)
	p.low[0]++
	if p.low[0] < pageSize-1 || p.epoch() == lastEpoch {
		return
	}
	p.state = [pageSize]state{p.epoch() + nextEpoch}
	p.low[0] = 0
	first := id &^ (pageSize - 1)
	for i := range uint32(pageSize - 1) {
		s.free.put(hint(first+1+i), chunks)
	}
}

// reset gives every id back; no timer is live and nothing refers to any.
func (s *slab[T]) reset() {
	for _, p := range s.pages {
		p.low[0] = 0
	}
	s.next, s.free = 0, freeIDs{}
}

// freeIDs are the ids of timers that are gone and whose hint has been met. They
// are kept as hints, of which only the id counts, mostly in chunks that hints
// have left: only ids from behind the cursor, which had none, take new ones.
//
//	         0            n                 126
//	ready  [ id | id | id |    |    | ... ]       put and taken at n
//	more     chunk --> chunk --> ...              63 ids each
type freeIDs struct {
	ready [2 * chunkHints]hint // the last ones
	n     int                  // how many these are
	more  uint32               // first of a list of full chunks, or 0
}

// put adds one. Half of those that are ready go into a chunk when it gets tight.
func (f *freeIDs) put(h hint, chunks *chunkPool) {
	if f.n == len(f.ready) {
		f.pack(chunks)
	}
	f.ready[f.n] = h
	f.n++
}

// take returns the one put last, or 0 when none is ready.
func (f *freeIDs) take() (id uint32) {
	if f.n > 0 {
		f.n--
		id = f.ready[f.n].id()
	}
	return id
}

// room returns the unused end of ready, for 63 ids at least; whoever writes some
// there adds their number to n.
func (f *freeIDs) room(chunks *chunkPool) *[chunkHints]hint {
	if f.n > chunkHints {
		f.pack(chunks)
	}
	return (*[chunkHints]hint)(f.ready[f.n:])
}

// pack puts away the oldest of those that are ready, which fill a chunk.
func (f *freeIDs) pack(chunks *chunkPool) {
	i := chunks.alloc()
	c := chunks.at(i)
	copy(c.hint[:], f.ready[:chunkHints])
	f.n = copy(f.ready[:], f.ready[chunkHints:f.n])
	c.next = f.more
	f.more = i
}

// unpack makes a chunk ready again, when none is; it reports false when there is
// no chunk.
func (f *freeIDs) unpack(chunks *chunkPool) bool {
	i := f.more
	if i == 0 {
		return false
	}
	c := chunks.at(i)
	f.n = copy(f.ready[:], c.hint[:])
	f.more = c.next
	chunks.release(i)
	return true
}

// grow adds a page to those there are, and for every 64 of them one more, up to
// 16 in all. They are allocated as one: for the garbage collector, which has
// nothing to scan in them, each object is still a step of its sweep.
func grow[P any](pages []*P, most int) []*P {
	block := make([]P, min(1+len(pages)/64, 16, most-len(pages)))
	for i := range block {
		pages = append(pages, &block[i])
	}
	return pages
}
