package ledger

import (
	"slices"
	"time"
)

// checkMissing: once a target was missing or forbidden for missing_target_timeout, what was due for it for as long
// becomes a dead letter, without help. The leader counts that time anew, and so does whoever was hampered meanwhile.
func (j *judge) checkMissing() {
	waits := make(map[uint64]bool)
	for _, m := range j.Pending {
		waits[m.Seq] = true
	}
	most := j.LongestMissingTimeout + traits["missing"].recovery + j.patience()
	for _, a := range j.Log.Accepted {
		until, condemned := j.letters[a.Identity]
		if waits[a.Seq] {
			until = j.End
		} else if !condemned {
			continue
		}
		if a.Letter || a.Unreadable || len(j.records[a.Identity]) > 1 {
			continue
		}
		since, absent := j.absentSince(a.Target, until)
		if !absent {
			continue
		}
		due := later(later(since, time.UnixMilli(a.Due)), a.At)
		if waited := j.longestCalm(a, due, until); waited > most {
			j.problem("stuck", "%s, seq %d, waited until %v for %s, which could not be written to for %v in which it was due and nothing else was wrong; it is to be given up after %v",
				a.Origin, a.Seq, until.Sub(j.Begin), a.Target, waited.Round(time.Second), j.LongestMissingTimeout)
		}
	}
}

// absentSince returns since when the target was missing or forbidden, at that time.
func (l *Ledger) absentSince(target string, at time.Time) (time.Time, bool) {
	for _, f := range l.Faults {
		isAbsence := f.Topic == target && (f.Kind == "missing" || f.Kind == "forbid")
		if isAbsence && f.From.Before(at) && (f.Until.IsZero() || !f.Until.Before(at)) {
			return f.From, true
		}
	}
	return time.Time{}, false
}

// longestCalm returns the longest time between from and to in which nothing but the absence of its target was wrong with
// a message, and one term lasted.
func (j *judge) longestCalm(a Acceptance, from, to time.Time) time.Duration {
	spans := append(slices.Clone(j.unrest()), span{to, to})
	for _, t := range j.Terms {
		spans = append(spans, span{t.Begin, t.Begin})
	}
	for _, f := range j.Faults {
		isAbsence := f.Topic == a.Target && (f.Kind == "missing" || f.Kind == "forbid")
		concerns := f.Topic == "" || f.Topic == a.Target || f.Topic == a.ID.Topic
		if isAbsence || !concerns || f.Node != "" || !traits[f.Kind].delays || traits[f.Kind].reads {
			continue
		}
		until := j.recovered(f)
		if until.IsZero() {
			until = later(to, f.From)
		}
		spans = append(spans, span{f.From, until})
	}
	var longest time.Duration
	for _, s := range merged(spans) {
		longest = max(longest, earlier(s.from, to).Sub(from))
		from = later(from, s.to)
	}
	return longest
}
