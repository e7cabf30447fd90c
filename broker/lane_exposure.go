package broker

import "time"

const (
	// mostExposed bounds what a crash at this moment can repeat: the records of one
	// target that Kafka has not answered, and of all targets those whose Ack is not in
	// the log. On time they are few, and waiting for Acks would make messages late.
	mostExposed = 2048
	// mostExposedLate is the bound while what is to be sent is late by lateAfter or
	// more: a backlog goes out as fast as Kafka takes it, so nearly all of the bound
	// is used, and a few milliseconds matter no more.
	mostExposedLate = 256
	lateAfter       = time.Second
	// ownExposed is what a lane that is late may send between two Acks whatever the
	// others have sent: a busy target must not keep it from ever getting on.
	ownExposed = 32
	// slowAfter is how long a record may be without an answer before no other follows
	// it. A sink that gives a record up by itself, after twice this, fails what it
	// holds behind it as well; one sent at that very moment would overtake them.
	slowAfter = time.Second
)

// mayLaunch reports whether another record may be sent now.
func (l *lane) mayLaunch() bool {
	if l.isExposed() {
		return false
	}
	return l.flying == 0 || l.flying < l.window && time.Since(l.oldestFlight()) < slowAfter
}

// isExposed reports whether a crash would repeat too much already.
func (l *lane) isExposed() bool {
	most := mostExposed
	if due, ok := l.nextDue(); ok && l.p.now()-due >= lateAfter.Milliseconds() && l.hasHadItsShare() {
		most = mostExposedLate
	}
	return l.flying+l.p.acks.unacked() >= most
}

// hasHadItsShare reports whether the lane has sent ownExposed since the last Ack.
func (l *lane) hasHadItsShare() bool {
	return l.sinceAck >= ownExposed && l.lastAck == l.p.acks.freed()
}

// nextDue returns when the message was due that is to be sent next.
func (l *lane) nextDue() (due int64, ok bool) {
	switch {
	case len(l.ready) > 0:
		return l.ready[0].ref.Due, true
	case len(l.waiting) > 0:
		return l.waiting[0].Due, true
	}
	return 0, false
}
