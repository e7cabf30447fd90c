package storage

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/carillonmq/carillon/storage/disk"
	"github.com/carillonmq/carillon/storage/segment"
)

// Read appends to out the messages that refs name, in their order, with bodies.
// refs must be in order of delivery. Those that are dead, or that name no message,
// are left out. Bodies are the caller's to keep but not to change. It may wait for
// the disk, and reads each chunk once. On an error, which names a message or a
// segment, out comes back as it was.
func (s *Store) Read(refs []Ref, out []Entry) ([]Entry, error) {
	out, _, err := s.ReadWithin(math.MaxInt, refs, out)
	return out, err
}

// ReadWithin is Read of the first refs only: of as many as have bodies of no more than so
// many bytes together, and of one at least that is alive. It returns how many refs these are.
func (s *Store) ReadWithin(bytes int, refs []Ref, out []Entry) (entries []Entry, read int, err error) {
	if !slices.IsSortedFunc(refs, Ref.Compare) {
		return out, 0, fmt.Errorf("read: refs are not in order of delivery")
	}
	was := len(out)
	out = append(out, make([]Entry, len(refs))...)
	found := out[was:] // Seq 0: not found
	onDisk, segments := s.readMemory(refs, found)
	defer segment.ReleaseAll(segments)
	for i, g := range segments {
		n, _ := slices.BinarySearch(onDisk[i], len(found))
		if n == 0 {
			continue
		}
		places := onDisk[i][:n]
		been, err := g.Read(refs, places, found, bytes, &s.indexes)
		if err != nil {
			return out[:was], 0, fmt.Errorf("read: %w", err)
		}
		if been < len(places) {
			found = found[:places[been]]
		}
	}
	found = found[:within(bytes, found)]
	return out[:was+len(slices.DeleteFunc(found, func(e Entry) bool { return e.Seq == 0 }))], len(found), nil
}

// within returns how many of the entries have bodies of no more than so many bytes together, or lie before the second body.
func within(bytes int, entries []Entry) int {
	read := 0
	for i, e := range entries {
		if read += len(e.Body); read > bytes && read > len(e.Body) {
			return i
		}
	}
	return len(entries)
}

// readMemory fills in what lies in memtables, and lists for each segment, pinned,
// which refs are alive in it.
func (s *Store) readMemory(refs []Ref, found []Entry) (onDisk [][]int, segments []*segment.Segment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	onDisk = make([][]int, len(s.segments))
	for i, r := range refs {
		if !s.alive.Contains(r.Seq) {
			continue
		}
		if at, ok := find(s.segments, r.Seq); ok {
			onDisk[at] = append(onDisk[at], i)
			continue
		}
		for _, t := range s.tables() {
			if e, ok := t.Get(r.Seq); ok && e.Due == r.Due {
				found[i] = e
			}
		}
	}
	segment.AcquireAll(s.segments)
	return onDisk, s.segments
}

// find returns the place of the segment that answers for seq.
func find(segments []*segment.Segment, seq uint64) (int, bool) {
	at, _ := slices.BinarySearchFunc(segments, seq, func(g *segment.Segment, seq uint64) int {
		if g.Info.Last < seq {
			return -1
		}
		return 1
	})
	return at, at < len(segments) && segments[at].Holds(seq)
}

// Item is what a scan tells of an entry: all but its body.
type Item struct {
	Ref
	Target  string
	Topic   string
	ID      string
	Expires int64
	Size    int // bytes of the body
}

// itemOf copies the id, which may be a view into a file.
func itemOf(e *Entry) Item {
	return Item{Ref: e.Ref(), Target: e.Target, Topic: e.Topic, ID: strings.Clone(e.ID), Expires: e.Expires, Size: len(e.Body)}
}

const (
	// scanChunks bounds the chunks that one scan reads, beside one per segment.
	scanChunks = 64
	// A scan looks at memory in steps, each under the lock, since what lies on disk comes first when much was
	// accepted since: scanVisits entries of each memtable in all, those of a step until scanFinds are found, and
	// scanAhead for each message that is wanted. Who wants few at a time, of which all lie on disk, looks at those
	// again each time.
	scanVisits = 16 << 10
	scanSteps  = 8
	scanFinds  = 256
	scanAhead  = 8
	// scanBatch is how many items are compared with the alive-set at a time.
	scanBatch = 256
)

// A Filter says by place, delay topic and target which messages a scan is to find; nil: all. It must be
// quick and must not call the store.
type Filter func(at Ref, topic, target string) bool

// Scan appends to out, in order of delivery, messages that are alive, lie at or
// after from and before to, and are such that keep accepts them, until out holds
// limit. The zero to is after all. It does a bounded amount of work, so it may return fewer, even none: go
// on at next until that is to, or until done, which says that nothing lies at or after next. It may
// wait for the disk.
//
// What is returned was alive when it was read; it may be dead by now. A message
// accepted during the scan may be missed.
func (s *Store) Scan(from, to Ref, limit int, keep Filter, out []Item) (items []Item, next Ref, done bool, err error) {
	if keep == nil {
		keep = func(Ref, string, string) bool { return true }
	}
	sc := scan{store: s, walk: walk{to: to}, limit: limit, keep: keep, out: out, checked: len(out), next: from, steps: scanSteps}
	defer func() { s.scanned.Add(sc.looked) }()
	sc.lookAtMemory(from)
	defer segment.ReleaseAll(sc.walk.segments)
	if err := disk.Guard(func() error { return sc.run(from) }); err != nil {
		return sc.out[:sc.checked], from, false, fmt.Errorf("scan: %w", err)
	}
	return sc.out, sc.next, sc.done, nil
}

// Scanned returns how many entries all scans together have looked at: what finding the messages
// that are due has cost.
func (s *Store) Scanned() uint64 { return s.scanned.Load() }

type scan struct {
	store *Store
	limit int
	keep  Filter
	walk  walk
	steps int // left to look at memory

	out     []Item
	checked int // items of out known to be alive
	looked  uint64
	next    Ref // everything before was looked at
	done    bool
}

func (sc *scan) lookAtMemory(from Ref) {
	s := sc.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	sc.steps--
	sc.walk.lookAtMemory(s, from, sc.visits(), min(sc.limit, scanFinds), sc.means)
}

// visits returns how many entries of each memtable a step looks at.
func (sc *scan) visits() int { return min(scanVisits/scanSteps, scanAhead*min(sc.limit, scanVisits)) }

// lookFurther looks at more of memory, and reports whether there is more to see.
func (sc *scan) lookFurther() bool {
	if sc.steps == 0 {
		return false
	}
	s := sc.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	sc.steps--
	return sc.walk.lookFurther(s, sc.visits(), min(sc.limit, scanFinds), sc.means)
}

// means reports whether the scan is to find what a memtable has. The caller holds mu.
func (sc *scan) means(e *Entry) bool {
	if sc.store.alive.Contains(e.Seq) && sc.keep(e.Ref(), e.Topic, e.Target) {
		return true // counted in batch
	}
	sc.looked++
	return false
}

func (sc *scan) run(from Ref) error {
	defer sc.walk.close()
	if err := sc.walk.start(from); err != nil {
		return err
	}
	for {
		more, err := sc.batch()
		sc.dropDead()
		if err != nil || !more || len(sc.out) >= sc.limit || sc.walk.spent(scanChunks) {
			return err
		}
	}
}

// batch appends what passes keep, scanBatch entries at most. It returns false at
// the end of what can be seen.
func (sc *scan) batch() (more bool, err error) {
	for range scanBatch {
		e := sc.walk.peek()
		for e == nil && sc.lookFurther() {
			e = sc.walk.peek()
		}
		if e == nil {
			sc.next, sc.done = sc.walk.end(sc.next)
			return false, nil
		}
		if len(sc.out) >= sc.limit {
			return true, nil
		}
		sc.looked++
		if sc.keep(e.Ref(), e.Topic, e.Target) {
			sc.out = append(sc.out, itemOf(e))
		}
		sc.next = Ref{Due: e.Due, Seq: e.Seq + 1}
		if err := sc.walk.skip(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// dropDead removes what is dead from the items appended last.
func (sc *scan) dropDead() {
	s := sc.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	kept := sc.out[:sc.checked]
	for _, item := range sc.out[sc.checked:] {
		if s.alive.Contains(item.Seq) {
			kept = append(kept, item)
		}
	}
	sc.out, sc.checked = kept, len(kept)
}
