package draw

import "time"

// What follows meets the bounds of the product: much in one moment, or in each millisecond, so that something
// is always on its way, waits to be read again, or dies while a file is written.

// dense has a target get a message or two in each millisecond, for so long at most.
func (r *run) dense(at, length time.Duration, topic string) {
	count := min(int(length/time.Millisecond), 1000)
	r.produce(r.before(at, 2*r.unit), count, "key=k%% deliver-to=%s %s spread=%s",
		topic, r.until(at), span(time.Duration(count)*pick(r, time.Millisecond, time.Millisecond/2)))
}

// crowded gets more at once than it may have, again and again, and in between something each millisecond: so often
// it is read to where messages are due right then. On slow disks much happens while it is read.
func crowded(r *run, at, length time.Duration) {
	topic := r.to()
	r.mixed(at, length)
	if r.chance(0.5) {
		r.slowAll(at, 20*time.Millisecond, 200*time.Millisecond)
	}
	for range 1 + r.IntN(2) {
		when := at + r.span(3*r.unit, length)
		r.dense(when, time.Second, topic)
		crowd := r.handed + r.handed/4 + r.IntN(r.handed)
		gap := r.fine(20*time.Millisecond, 200*time.Millisecond)
		for n := range min(12, 4000/crowd) {
			r.produce(r.before(when, 2*r.unit), crowd, "deliver-to=%s %s", topic, r.until(when+time.Duration(n)*gap))
		}
	}
}

// waves are messages that come together, lie in one file, and go together while other files are written, on slow
// disks. Nodes die all the while.
func waves(r *run, at, length time.Duration) {
	r.slowAll(at, 20*time.Millisecond, 500*time.Millisecond)
	size := int(r.size(200, 2000))
	wave := min(2+r.flush/size, 200) // about a file
	gap := r.span(300*time.Millisecond, 3*time.Second)
	first := at + r.span(10*time.Second, 20*time.Second)
	for n := range 10 {
		begun := at + time.Duration(n)*gap/2
		r.produce(begun, wave, "bytes=%d deliver-to=%s %s", size, r.targets[n%len(r.targets)], r.until(first+time.Duration(n)*gap))
	}
	over := first + 10*gap
	about := max(gap/time.Duration(wave), 10*time.Millisecond)
	r.produce(first, min(int((over-first)/about), 400), "about=%s bytes=%d deliver-to=%s %s", span(about), size, r.to(), after(r.span(time.Second, r.horizon)))
	for range 3 + r.IntN(4) {
		if r.chance(0.5) {
			r.on("named", 1+r.IntN(4), first+time.Duration(r.Int64N(int64(over-first))), "kill here")
		} else {
			r.at(first+time.Duration(r.Int64N(int64(over-first))), "kill %s", pick(r, r.who(), r.host(), r.host()))
		}
		r.at(first+time.Duration(r.Int64N(int64(over-first))), "start down")
	}
	r.owe("start down")
	r.mend(over + r.span(r.heartbeat, length))
}

// overwritten is what users change their minds about faster than commands are written: of a few ids each takes the
// place of the one before, or is cancelled, while others are delivered.
func overwritten(r *run, at, length time.Duration) {
	topic := r.targets[0]
	r.slowAll(at, 10*time.Millisecond, 50*time.Millisecond)
	r.produce(at, 100+r.count(), "key=k%% deliver-to=%s %s spread=%s", topic, after(r.unit), span(length/2))
	for round := range 1 + r.IntN(3) {
		when := at + r.span(r.unit, length/2)
		of := "ids=" + pick(r, "5", "10", "20") + " key=k% deliver-id=again-" + string(rune('a'+round)) + "-%"
		source := pick(r, r.sources...)
		about := r.span(2*time.Millisecond, 20*time.Millisecond)
		r.at(when, "produce %s count=%d about=%s %s deliver-to=%s %s", source, 100+r.IntN(200), span(about), of, topic, after(r.span(100*time.Millisecond, 500*time.Millisecond)))
		if r.chance(0.5) {
			r.at(when, "produce %s count=%d about=%s %s deliver-cancel=true", source, 20+r.IntN(50), span(4*about), of)
		}
	}
}

// readAgain is a term that ends while targets are slow and one is parked. The next one has much to read, in small
// pages from slow disks, and meanwhile events are replayed for the parked one.
func readAgain(r *run, at, length time.Duration) {
	r.slowAll(at, 50*time.Millisecond, time.Second)
	bad, slow := r.targets[0], r.targets[1:]
	begun := at + r.span(r.unit, 5*r.unit)
	for _, topic := range slow {
		r.fault(at, "slow "+topic+" answer="+span(r.fine(2*time.Second, 10*time.Second)), "well "+topic)
	}
	const lasts = 20 * time.Second
	for _, topic := range r.targets {
		r.produce(at, 50+min(r.loaded, 200), "key=k%% deliver-to=%s %s spread=%s", topic, r.until(begun), span(lasts))
	}
	r.fault(begun+r.span(time.Second, lasts), "forbid "+bad, "allow "+bad)
	r.on("parked", 1, begun, r.blow("here"))
	for range 3 {
		r.on("term", 1, begun, "produce "+pick(r, r.sources...)+" count=40 every="+span(r.span(10*time.Millisecond, 200*time.Millisecond))+
			" scatter="+span(lasts)+" deliver-to="+bad+" "+r.until(begun))
	}
	over := begun + lasts + 20*r.heartbeat
	r.at(over, "start down")
	r.at(over, "thaw all")
	if r.chance(0.5) { // and what was set aside in that term is the next one's
		r.at(over+r.span(time.Second, 10*time.Second), "%s", r.blow("leader"))
		over += 10*time.Second + 20*r.heartbeat
	}
	r.mend(over + r.span(r.unit, length))
}

// overfull is more at once than the window holds, again and again, so that what was read is read once more, in small
// pages from slow disks: events that are replayed. Meanwhile one target is paused, or given up, gets some of its own,
// and comes back with much that is due soon.
func overfull(r *run, at, length time.Duration) {
	r.slowAll(at, 50*time.Millisecond, 500*time.Millisecond)
	bad := r.targets[0]
	rush := func(at, ago time.Duration) {
		r.produce(at, 1+min(2*r.loaded, 500), "scatter=%s key=k%% deliver-to=%s %s", span(ago), pick(r, r.targets[1:]...), r.until(at-ago))
	}
	for range 2 + r.IntN(3) {
		at += r.span(time.Second, 10*time.Second)
		r.produce(at, 30+r.IntN(30), "key=k%% deliver-to=%s %s spread=40s", bad, r.until(at))
		fault, mend := "pause target "+bad, "resume target "+bad
		if r.chance(0.3) {
			fault, mend = "forbid "+bad, "allow "+bad
		}
		r.fault(at, fault, mend)
		at += r.span(time.Second, 10*time.Second)
		ago := r.span(5*time.Second, 60*time.Second)
		rush(at, ago)
		own := ago / time.Duration(1+r.IntN(5))
		about := r.span(10*time.Millisecond, 200*time.Millisecond)
		r.produce(at+r.span(50*time.Millisecond, time.Second), 1+r.IntN(20), "about=%s scatter=%s key=k%% deliver-to=%s %s", span(about), span(own), bad, r.until(at-own))
		at += r.span(2*time.Second, 20*time.Second)
		r.at(at, "%s", mend)
		for range 1 + r.IntN(3) {
			at += r.span(50*time.Millisecond, 2*time.Second)
			rush(at, r.span(time.Second, 10*time.Second))
		}
	}
	r.mend(at + r.span(r.unit, length))
}

// manyReturn are targets that are missing when their messages are due, and that all come in one moment, while nothing else is
// wrong: what waits for all of them is read once.
func manyReturn(r *run, at, length time.Duration) {
	r.mend(at)
	at += 30*time.Second + 30*r.heartbeat // until that is recovered from
	count := 120 + r.IntN(80)
	ago := min(r.timeout/2, length/2)
	create := at + 2*r.unit + ago
	for range 10 {
		r.produce(at, count, "deliver-to=w%% targets=%d %s spread=%s", count, r.until(create-ago), span(ago/2))
	}
	r.at(create, "create w%% count=%d", count)
}
