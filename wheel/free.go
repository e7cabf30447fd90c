package wheel

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
