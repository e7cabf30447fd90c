// Package wheel is a hierarchical timing wheel: a data structure that holds
// millions of timers and tells which are due, exactly on the tick and in
// order.
//
// It is a pure data structure. It starts no goroutine, reads no clock, takes
// no lock and does no I/O: the caller says what time it is. Package
// wheel/timer drives one with a clock, for those who want callbacks.
//
//	w := wheel.New[string](now)
//	h, err := w.Add(now+250, "retry")   // in 250 ticks
//	next, ok := w.Next()                // sleep until then
//	due, more := w.Advance(next, buf)   // what has come due
//	ok = w.Cancel(h)                    // or not at all
//
// # Promises
//
//   - A timer fires at the first [Wheel.Advance] to its deadline or later: never at
//     an earlier tick, whatever the clock did in between, and only once.
//   - Timers come in the order of their deadlines, those of one tick in the
//     order of adding. This holds for past deadlines too. Only a timer that
//     was moved has no particular place within its tick.
//   - A [Handle] names one timer for ever. When that is gone the handle is
//     refused; it never hits a timer that was added later.
//   - Add, Cancel, Move and Next take constant time. Firing costs one step
//     down per level, seven at most, and less where timers are sparse. An
//     empty decade costs nothing.
//   - One Advance does bounded work: it fills the room the caller gives it,
//     and cascades about 2,016 timers. It says when to call it again.
//   - In steady state nothing is allocated. If T holds no pointer, the garbage
//     collector has nothing to scan.
//
// # Ticks
//
// A tick is whatever the caller counts, from wherever: milliseconds since 1970
// are a good choice. Ticks go from 0 to [MaxTick], 2^48-1: in milliseconds that
// is the year 10889. To be never early with a finer clock, round deadlines up
// and the clock down.
//
// # Levels
//
// Deadlines are read as numbers of eight digits with base 64. The cursor is the
// tick the wheel has got to. A timer lies on the level of the highest digit in
// which its deadline differs from the cursor, in the slot which that digit
// names:
//
//	level  one slot    64 slots    (ticks of a millisecond)
//	  0      1 ms       64 ms      [ ][ ][ ][c][x][ ] ... [x]
//	  1     64 ms      4.1 s       [ ][c][ ][x] ...
//	  2    4.1 s       4.4 min     [c][ ][ ] ...
//	  3    4.4 min     4.7 h           c: the cursor's slot; on level 0 it is what
//	  4    4.7 h        12 days           fires now, above it is always empty:
//	  5     12 days    2.2 years          its timers lie on the levels below
//	  6    2.2 years   139 years       x: one bit in the level's word of 64
//	  7    139 years   8,925 years
//
// So everything on a level comes before everything on the next, and the slots
// of a level are in order of time. The first occupied slot of all is two
// instructions away: the lowest level that is not empty, the lowest bit of its
// word. What a slot held may also wait beside the levels, sorted: see below.
//
// # One cascade, step by step
//
// Digits are written from the left, and only the last three of eight. The
// cursor is at tick 100 = 1·64+36, or 0.1.36. Three timers are added:
//
//	A at   110 = 0.1.46     differs in the last digit:      level 0, slot 46
//	B at   200 = 0.3.8      differs in the middle digit:    level 1, slot 3
//	C at 4,300 = 1.3.12     differs in the first digit:     level 2, slot 1
//
// Next says 110. Advance(110) moves the cursor to 0.1.46 and fires A.
//
// Next says 200: the lowest level that is not empty is now level 1, and slot 3
// keeps the minimum of its deadlines. Advance(200) moves the cursor to 0.3.8.
// That enters slot 3 of level 1, so its timers have to leave it. They are few:
// they are sorted and go to the run, the list of what comes next. B is its first
// and fires. Another one at 0.3.20 would wait in the run now, ahead of any that
// is added at that tick from here on, to level 0, slot 20.
//
// Next says 4,300, and Advance(4300) goes there in one step: no tick between is
// looked at. C skips levels 1 and 0, as all timers do that have few beside them.
//
// A slot of more than 63 timers is not sorted. It gets a child, 64 slots of the
// level below, and is moved there chunk by chunk, with the cursor still in front
// of it; when the cursor enters, the child takes the place of the level
// below. [Wheel.Maintain] does the same ahead of time.
//
// # Time that jumps
//
// Forward by any distance: Advance returns all that has come due, in order.
// Backward: the cursor stays, and what is added before it waits in a small heap
// for its own tick. So a delay of 10 ms takes 10 ms by the new clock too. The
// heap costs O(log n): after a large step back it is worth draining the wheel
// into a new one.
//
// DESIGN.md has the layout in memory, the invariants and the measurements.
package wheel
