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
