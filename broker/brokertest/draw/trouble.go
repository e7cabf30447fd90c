package draw

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A trouble is a kind of fault, and what ends it. In both, <node>, <topic> and <source> stand for
// one that is drawn.
type trouble struct {
	fault func(r *run) string
	mend  string // "": it ends by itself, or with everything else at the end of a scene
}

func always(text string) func(*run) string { return func(*run) string { return text } }

func troubles() []trouble {
	return append(nodeTroubles(), kafkaTroubles()...)
}

func nodeTroubles() []trouble {
	return []trouble{
		{always("kill <node>"), "start down"},
		{always("kill <node>"), "start down"},
		{always("kill all"), "start down"},
		{always("stop <node>"), "start down"},
		{always("freeze <node>"), "thaw all"},
		{always("isolate <node>"), "heal"},
		{always("cut <node>"), "heal"},
		{always("silence <node>"), "heal"},
		{always("cut <node> from=kafka"), "heal"},
		{always("silence <node> from=kafka"), "heal"},
		{func(r *run) string { return pick(r, "cut", "silence") + " <node> from=" + r.host() + " oneway" }, "heal"},
		{func(r *run) string {
			return "disk <node> slow=" + span(r.span(time.Millisecond, max(10*time.Second, r.unit)))
		}, "disk <node> well"},
		{always("disk <node> full"), "disk <node> well"},
		{always("disk <node> torn"), ""},
		{func(r *run) string {
			return "clock <node> step=" + pick(r, "+", "-") + r.span(time.Millisecond, 10*r.unit).String()
		}, "clock <node> well"},
		{func(r *run) string {
			return "clock <node> drift=" + pick(r, "", "-") + r.span(time.Millisecond, 100*time.Millisecond).String() + "/s"
		}, "clock <node> well"},
		{always("config <node> kafka.compression=lz4"), ""},
		{func(r *run) string { return "config <node> raft.heartbeat=" + (2 * r.heartbeat).String() }, ""},
	}
}

func kafkaTroubles() []trouble {
	return []trouble{
		{slow, "well <topic>"},
		{slow, "well <topic>"},
		{always("hush <topic>"), "well <topic>"},
		{always("forbid <topic>"), "allow <topic>"},
		{always("forbid <source>"), "allow <source>"},
		{always("forbid carillon.dead-letter"), "allow carillon.dead-letter"},
		{func(r *run) string { return "partitions <topic> " + pick(r, "3", "4", "5", "8") }, ""},
		{func(r *run) string { return "partitions <source> " + pick(r, "3", "4", "5") }, ""},
		{func(r *run) string {
			return "stale " + pick(r, "metadata", "offsets") + " lasts=" + span(r.span(r.unit/2, 20*r.unit))
		}, ""},
		{requestFails, ""},
		{requestFails, ""},
		{always("trim <source>"), ""},
		{func(r *run) string { return r.election("<source>") }, ""},
		{always("elect <topic>"), ""},
		{func(r *run) string { return fmt.Sprintf("limit <topic> bytes=%d", int(r.size(300, 100<<10))) }, "well <topic>"},
		{always("recreate <source>"), ""},
	}
}

func slow(r *run) string {
	return "slow <topic> answer=" + span(r.fine(100*time.Millisecond, 10*time.Second))
}

func requestFails(r *run) string {
	text := pick(r,
		"error Produce err=NOT_LEADER_FOR_PARTITION",
		"error Produce err=REQUEST_TIMED_OUT",
		"error Produce err=NOT_ENOUGH_REPLICAS",
		"error Produce err=NO_ANSWER",
		"error Produce err=MESSAGE_TOO_LARGE",
		"error Fetch err=NOT_LEADER_FOR_PARTITION",
		"error Fetch err=OFFSET_OUT_OF_RANGE",
		"error Fetch err=FENCED_LEADER_EPOCH",
		"error Fetch err=UNKNOWN_TOPIC_OR_PARTITION",
		"error Fetch err=NO_ANSWER",
		"error ListOffsets err=LEADER_NOT_AVAILABLE",
		"error ListOffsets err=NO_ANSWER",
		"error Metadata err=LEADER_NOT_AVAILABLE",
		"error Metadata err=UNKNOWN_TOPIC_OR_PARTITION",
		"error Metadata err=NO_ANSWER",
		"error OffsetForLeaderEpoch err=UNKNOWN_LEADER_EPOCH",
		"error InitProducerID err=COORDINATOR_NOT_AVAILABLE",
	)
	if !strings.HasSuffix(text, "NO_ANSWER") { // each of which takes a minute
		text += " count=" + pick(r, "1", "2", "3")
	}
	switch {
	case strings.HasPrefix(text, "error Produce") && r.chance(0.6):
		return text + " topic=<topic>"
	case strings.HasPrefix(text, "error Fetch") && r.chance(0.6):
		return text + " topic=<source>"
	}
	return text
}

// who draws the node that something happens to: mostly the one that leads.
func (r *run) who() string {
	if r.nodes == 1 || r.chance(0.25) {
		return r.host()
	}
	return pick(r, "leader", "leader", "follower")
}

func (r *run) host() string { return "n" + string(rune('1'+r.IntN(r.nodes))) }

// happen has the trouble begin at a time and, mostly, end after another.
func (t trouble) happen(r *run, at, longest time.Duration) {
	text, mend := r.fill(t.fault(r), t.mend, r.who())
	r.fault(at, text, mend)
	if mend != "" && r.chance(0.8) {
		r.at(at+r.span(r.heartbeat/10, longest), "%s", mend)
	}
}

// fill puts names where they are left open. The clock and the disk of a node are mended by its
// name, since another one may lead by then; which one an event is at, nobody knows.
func (r *run) fill(fault, mend, node string) (string, string) {
	host := r.host()
	if strings.Contains(mend, "<node>") && node != "here" {
		node = host
	}
	names := strings.NewReplacer("<topic>", r.to(), "<source>", pick(r, r.sources...))
	fault, mend = names.Replace(fault), names.Replace(mend)
	return strings.ReplaceAll(fault, "<node>", node), strings.ReplaceAll(mend, "<node>", host)
}

// A debt is what ends some trouble, and when that begins at the latest; 0: by the next mend.
type debt struct {
	mend   string
	begins time.Duration
}

// fault has a fault begin, and notes what would end it.
func (r *run) fault(at time.Duration, text, mend string) {
	r.at(at, "%s", text)
	r.oweFrom(at, mend)
}

// owe notes what ends the trouble that may be there.
func (r *run) owe(mend string) { r.oweFrom(0, mend) }

func (r *run) oweFrom(begins time.Duration, mend string) {
	if mend == "" {
		return
	}
	at := slices.IndexFunc(r.owed, func(d debt) bool { return d.mend == mend })
	if at < 0 {
		at = len(r.owed)
		r.owed = append(r.owed, debt{mend: mend})
	}
	r.owed[at].begins = max(begins, r.owed[at].begins)
}

// mendCostly ends, before nothing more happens for long, what costs as long as it lasts, also what an event may bring after
// all that was to end it: those who are apart hold elections, and the Kafka clients of a node that is frozen try again, all
// the time.
func (r *run) mendCostly(at time.Duration) {
	for _, mend := range []string{"thaw all", "heal"} {
		if slices.ContainsFunc(r.owed, func(d debt) bool { return d.mend == mend }) {
			r.at(at, "%s", mend)
		}
	}
	for _, text := range r.armed {
		for _, of := range []struct{ verb, mend string }{{" freeze ", "thaw all"}, {" cut ", "heal"}, {" silence ", "heal"}, {" isolate ", "heal"}} {
			if strings.Contains(text, of.verb) {
				r.at(at, "%s", of.mend)
			}
		}
	}
}

// mend ends all trouble that may be there. What begins later is owed still.
func (r *run) mend(at time.Duration) {
	for _, d := range r.owed {
		r.at(at, "%s", d.mend)
	}
	r.owed = slices.DeleteFunc(r.owed, func(d debt) bool { return d.begins <= at })
}

// Events are the moments at which trouble can be had to the point.
func Events() []string {
	return []string{
		"claim", "handed", "answered", "acked", "taken", "flushed", "named", "merged", "received",
		"parked", "probed", "term", "term-end",
	}
}

// ambush has trouble at one of the script's events, there where it happens.
func (r *run) ambush(after time.Duration) {
	r.surprise(pick(r, r.events...), after, r.sudden())
}

// surprise has something happen at the event, after a time, and mended a little later.
func (r *run) surprise(event string, after time.Duration, t trouble) {
	text, mend := r.fill(t.fault(r), t.mend, "here")
	r.on(event, r.nth(event), after, text)
	r.owe(mend)
	if mend != "" {
		r.at(after+r.span(2*r.unit, 20*r.unit), "%s", mend)
	}
}

// nth draws how often the event must happen, which some seldom do.
func (r *run) nth(event string) int {
	if slices.Contains([]string{"claim", "handed", "answered", "acked", "taken"}, event) {
		return int(r.size(1, 60))
	}
	return int(r.size(1, 5))
}

// sudden draws one of the script's troubles, or a kill.
func (r *run) sudden() trouble {
	if len(r.troubles) == 0 || r.chance(0.3) {
		return trouble{always(pick(r, "kill <node>", "kill <node>", "stop <node>")), "start down"}
	}
	return pick(r, r.troubles...)
}
