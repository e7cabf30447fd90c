package broker

import (
	"fmt"
	"sync"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// unreadable is the messages of a term whose stored bodies cannot be decoded: damaged,
// or written by a newer version. Such a message stays in the schedule as it is. Its lane
// lets go of it; for the scheduler it is with the publisher until the term ends, so that
// no mark passes it and the next term, perhaps of another version, reads it again. Like
// all that is handed over these count for mostHanded.
type unreadable struct {
	mu       sync.Mutex
	messages int
	warned   time.Time
}

// leaveUnreadable tells the world of a message that is left where it is.
func (p *publisher) leaveUnreadable(entry *storage.Entry, cause error) {
	u := &p.unreadable
	u.mu.Lock()
	defer u.mu.Unlock()
	u.messages++
	p.cfg.Count.Unreadable()
	p.cfg.Report.SetProblem("schedule", fmt.Sprintf("messages cannot be read and stay as they are, %d of them, one for topic %q: %v: "+
		"run the newest version on all nodes; if that is so, stop this one, since the copy of another may be sound", u.messages, entry.Target, cause))
	if time.Since(u.warned) < time.Second {
		return // a line for each of thousands would help nobody
	}
	u.warned = time.Now()
	p.log.Error("message cannot be read and stays in the schedule", "seq", entry.Seq, "due", time.UnixMilli(entry.Due).UTC(),
		"target", entry.Target, "bytes", len(entry.Body), "so_far", u.messages, "error", cause)
}
