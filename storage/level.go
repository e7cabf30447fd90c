package storage

// A Level says in which forms a cluster writes: log commands, message bodies,
// snapshot streams, and each node's own files. It is replicated and only ever
// raised, by a log command, once every member runs a program that understands
// it. Below a level nothing is written that programs of the level before cannot
// read; so a node can be taken back to such a program until the raise, and not
// after it.
//
// Whoever writes a form that a level brought asks Store.Level each time: the
// raise comes in the middle of a term.
type Level uint32

const (
	// LevelOne is that of clusters whose state names none: all that ran before
	// there were levels.
	LevelOne Level = 1
	// LevelTwo has records and streams whose parts tell their own versions.
	LevelTwo Level = 2

	// NewestLevel is what this program understands, with all below it.
	NewestLevel = LevelTwo
)

// Level returns the feature level in force. It never waits for Apply or the disk,
// and may be called from any goroutine.
func (s *Store) Level() Level { return Level(s.level.Load()) }

// RaiseLevel raises the feature level; a lower one is passed over. Called by the
// writer, with no more than NewestLevel.
func (s *Store) RaiseLevel(l Level) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values.level = max(s.values.level, l)
	s.level.Store(uint32(s.values.level))
}
