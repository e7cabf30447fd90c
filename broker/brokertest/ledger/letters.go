package ledger

import "time"

// checkLetters: a good message that the log has made a dead letter is one that is due for the dead-letter topic from then
// on. It comes there without help, as everything does that is due.
func (j *judge) checkLetters() {
	pending := make(map[uint64]bool)
	for _, m := range j.Pending {
		pending[m.Seq] = true
	}
	for seq, a := range j.Log.Accepted {
		records := j.records[a.Identity]
		if !a.Letter || a.Unreadable || len(records) != 1 {
			continue
		}
		until, written := j.letterWritten(a.Identity)
		if !written {
			until = j.End
		}
		late := calm(j.disturbed(records[0].Topic, j.DeadLetters), a.At, until)
		switch {
		case late <= j.patience():
		case written:
			j.problem("progress", "%s, a dead letter since %v, was written to %s %v later, %v of them with nothing wrong",
				records[0], a.At.Sub(j.Begin), j.DeadLetters, until.Sub(a.At), late)
		case pending[seq]:
			j.problem("stuck", "%s, a dead letter since %v, still waits after %v in which nothing was wrong", records[0], a.At.Sub(j.Begin), late)
		}
	}
}

// letterWritten returns when the dead letter of a record was written first, if it was.
func (j *judge) letterWritten(id Identity) (time.Time, bool) {
	for _, d := range j.copies[id] { // by time
		if d.Topic == j.DeadLetters {
			return d.At, true
		}
	}
	return time.Time{}, false
}
