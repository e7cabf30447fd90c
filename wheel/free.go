package wheel

// freeIDs are the ids of timers that are gone and whose hint has been met. They
// are kept as those hints, in chunks that hints have left, so that
// freeing takes no memory.
//
//	ready  [ | | | | | | | | | |x|x|x|x|x|x| ... ]   taken and put at its end, n
//	more   chunk --> chunk --> ...                  full ones
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

// room returns the place for the next ones, that of a chunk at least, which
// taken then makes free.
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

// unpack makes a chunk ready again, or reports false when there is none.
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
