// Package draw makes scripts for broker/brokertest out of seeds. It is pure: the same seed gives
// the same script, and it knows the language of the scripts and nothing of what plays them.
//
// Each script is drawn in two steps. First it gets a palette: a scale of time, limits, a few
// shapes of traffic, a few kinds of trouble and a few plots, out of many. Then it uses these, and
// nothing else, again and again. A script that has a little of everything seldom gets deep into
// anything; a bug is mostly where two or three things meet often.
package draw

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Profile says on which scale of time a script plays.
type Profile string

const (
	// Any leaves the scale to the seed.
	Any Profile = "any"
	// TrueScale has the heartbeat of the product, and takes minutes to hours of virtual time.
	TrueScale Profile = "true"
	// Stretched has heartbeats of 10 to 60 s, and takes days to years.
	Stretched Profile = "stretched"
	// Long leaves the scale to the seed, and has all the time in which nothing happens.
	Long Profile = "long"
)

// ParseProfile returns the profile of that name.
func ParseProfile(name string) (Profile, error) {
	switch p := Profile(name); p {
	case Any, TrueScale, Stretched, Long:
		return p, nil
	}
	return "", fmt.Errorf("profile %q: want %s, %s, %s or %s", name, Any, TrueScale, Stretched, Long)
}

// Script returns the script of the seed.
func Script(seed uint64, profile Profile) string {
	r := newRun(seed, profile)
	if r.brokers > 1 {
		r.leaveOut(stopsTime)
	}
	if strings.Contains(r.text(), " replace ") { // which waits until the node is back
		r.armed = nil
	}
	return r.text()
}

func newRun(seed uint64, profile Profile) *run {
	r := &run{Rand: rand.New(rand.NewPCG(seed, 0))}
	r.drawScale(profile)
	if profile != Long {
		r.hurry(seed)
	}
	r.drawPalette()
	r.drawCluster()
	r.begin()
	at := r.ready()
	scenes := 1 + r.IntN(5)
	for n := range scenes {
		at = r.scene(at, r.plots[n%len(r.plots)])
		r.mendCostly(at)
		at += time.Duration(r.Int64N(int64(2*r.length) / int64(scenes)))
	}
	end := max(at, r.last()+r.unit)
	r.end(end)
	r.paused(seed, end)
	r.changed(seed, end)
	r.expired(seed, end)
	r.shortened(seed, end)
	r.rare(seed, end)
	r.grown(seed, end)
	r.anew(seed, end)
	r.differing(seed, end)
	r.inTurn(seed, end)
	return r
}

// ready is when the nodes have found each other, and what there is.
func (r *run) ready() time.Duration { return 5 * r.unit }

// A run is one script in the making.
type run struct {
	*rand.Rand
	script

	// unit is what a second is at true scale: faults and what lies between them are drawn in it.
	unit      time.Duration
	heartbeat time.Duration
	length    time.Duration // about
	horizon   time.Duration // the longest delay, except for what is far
	far       time.Duration // how long all nodes are stopped at the end, 0 if they are not

	nodes    int
	handed   int           // messages of one target with the publisher at most
	loaded   int           // messages in the window at most
	flush    int           // bytes in memory that are flushed, or the most that is drawn
	answer   time.Duration // of Kafka to what is written
	timeout  time.Duration // after which what is due for a missing target is a dead letter
	brokers  int           // of Kafka; 0: one
	old      bool          // founded by programs of the first feature level
	sources  []string
	targets  []string        // topics that exist; the first is the one of trouble
	missing  []string        // topics that are created later
	many     int             // how many topics t0, t1, ... there are
	instants []time.Duration // at which much is due
	records  int             // how many a line produces, about
	keys     int             // how many there are
	owed     []debt          // what would end the trouble that may be there

	shapes   []shape
	delays   []delay
	troubles []trouble
	plots    []plot
	events   []string
}

// drawScale draws how long a heartbeat is, and everything that is measured in it.
func (r *run) drawScale(profile Profile) {
	if profile == Any || profile == Long {
		trueScale := 0.4
		if profile == Long {
			trueScale = 0.55 // it has days at true scale, too, and their scripts are the cheaper ones
		}
		profile = Stretched
		if r.chance(trueScale) {
			profile = TrueScale
		}
	}
	if profile == TrueScale {
		r.heartbeat = 300 * time.Millisecond
		r.length = r.span(time.Minute, 6*time.Hour)
		r.horizon = 2 * time.Minute
	} else {
		r.heartbeat = r.span(10*time.Second, time.Minute).Round(time.Second)
		r.length = r.span(12*time.Hour, 5*24*time.Hour)
		r.horizon = 36 * time.Hour
	}
	r.unit = r.heartbeat * 10 / 3
	if r.chance(0.15) {
		r.far = r.span(24*time.Hour, 365*24*time.Hour)
	}
}

// hurry leaves out, in three of four scripts, most of the time in which nothing happens: it is heartbeats, most
// of what a script costs, and shows little but leaks, for which the fourth will do. It draws for itself, as
// paused does.
func (r *run) hurry(seed uint64) {
	if rand.New(rand.NewPCG(seed, 4)).IntN(4) > 0 {
		r.length, r.horizon = min(r.length, 100*r.unit), min(r.horizon, 300*r.unit)
	}
}

// drawCluster draws the nodes, the topics, and limits that are small enough to be met often.
func (r *run) drawCluster() {
	r.nodes = pick(r, 1, 3, 3, 3, 3, 3, 3, 5)
	r.setting("nodes=%d", r.nodes)
	r.setting("heartbeat=%s", r.heartbeat)
	drawn := map[string]int{"handed": 2048, "flying": 256, "flush": 1 << 20, "proposal": 1 << 20}
	small := pick(r, 0.5, 0.5, 0.5, 0.9)
	for _, limit := range limits() {
		most := limit.most
		if r.isAbout(limit.name) {
			most = limit.least * math.Cbrt(most/limit.least) // the lowest third of its magnitudes
		} else if !r.chance(small) || r.isAbout("wide") && slices.Contains([]string{"handed", "feed", "proposal"}, limit.name) {
			continue
		}
		drawn[limit.name] = int(r.size(limit.least, most))
		r.setting("%s=%d", limit.name, drawn[limit.name])
	}
	r.handed, r.loaded, r.flush = drawn["handed"], 65536, drawn["flush"]
	r.drawLatencies(drawn["handed"], drawn["flying"], drawn["proposal"])
	if r.isAbout("loaded") || r.chance(small) && !r.isAbout("wide") { // a page is a quarter of what is loaded at most
		most := 4096.
		if r.isAbout("loaded") {
			most = 64
		}
		loaded := r.size(8, most)
		r.loaded = int(loaded)
		r.setting("loaded=%d", r.loaded)
		r.setting("page=%d", int(r.size(1, loaded/4)))
	} else if r.isAbout("page") {
		r.setting("page=%d", int(r.size(1, 64)))
	}
	if r.isAbout("brokers") || r.chance(0.35) {
		r.brokers = pick(r, 2, 3)
		r.setting("brokers=%d", r.brokers)
	}
	if r.old = r.chance(0.15); r.old {
		r.setting("program=1")
	}
	r.timeout = r.span(r.unit, max(10*time.Minute, 60*r.unit))
	if r.isAbout("missing_target_timeout") {
		r.timeout = r.span(15*time.Second, time.Minute)
	}
	r.setting("missing_target_timeout=%s", span(r.timeout))
	r.records = int(r.size(5, 300))
	r.keys = int(r.size(1, 100))
	r.sources = []string{"orders.delay", "bills.delay"}[:1+r.IntN(2)]
	r.targets = []string{"orders", "bills", "mails"}
	r.missing = []string{"late", "never"}
}

// drawLatencies draws how long disks and Kafka take while all is well, since what takes no time is never
// on its way. A target still gets some hundred messages in a second, and mostly thousands: as many as it may have
// go out with each answer, as many as may be handed over with each answer and its Ack, and as many are taken in with
// each commit as a proposal has room for, 100 bytes each. Three of ten are as quick
// as good ones are: several things happen one after the other within a millisecond.
func (r *run) drawLatencies(handed, flying, proposal int) {
	const least, most = time.Millisecond, 50 * time.Millisecond
	syncMost := min(most, time.Duration(handed)*time.Millisecond/10, time.Duration(proposal)*time.Millisecond/50)
	answerMost := min(most, time.Duration(min(handed, flying))*time.Millisecond/4)
	if r.chance(0.3) {
		syncMost, answerMost = 0, 0
	}
	if r.chance(0.75) {
		r.setting("sync=%s", span(r.latency(least, syncMost)))
	}
	if r.chance(0.75) {
		r.answer = r.latency(least, answerMost)
		r.setting("answer=%s", span(r.answer))
	}
}

// latency draws how long something takes while all is well. What takes whole milliseconds ends together
// with what is due then, and what does not ends between two ticks. Where there is time for less than the least, it
// takes a part of that.
func (r *run) latency(least, most time.Duration) time.Duration {
	if most < least {
		return r.fine(least/20, least)
	}
	if r.chance(0.5) {
		return r.span(least, most)
	}
	return r.fine(least, most)
}

// A limit is a setting of the line "cluster" that makes a bound of the product small.
type limit struct {
	name        string
	least, most float64
}

func limits() []limit {
	return []limit{
		{"flush", 4 << 10, 1 << 20},
		{"segment", 64 << 10, 4 << 20},
		{"handed", 4, 2048},
		{"flying", 1, 256},
		{"feed", 1, 256},
		{"merge", 3, 5}, // of two neighbours one has half of the bytes, so that they are not merged
		{"proposal", 256, 64 << 10},
	}
}

// drawPalette draws what this script is made of.
func (r *run) drawPalette() {
	r.shapes = some(r, shapes(), 1, 4)
	r.delays = some(r, delays(), 1, 4)
	r.troubles = some(r, troubles(), 0, 5)
	r.drawPlots(2, 4)
	r.events = some(r, Events(), 1, 4)
	for range 1 + r.IntN(3) {
		r.instants = append(r.instants, r.span(r.unit, r.length))
	}
}

// begin makes the topics and starts the nodes.
func (r *run) begin() {
	for _, topic := range r.sources {
		r.at(0, "create %s partitions=%d", topic, 1+r.IntN(3))
	}
	for _, topic := range r.targets {
		r.at(0, "create %s partitions=%d", topic, 1+r.IntN(3))
	}
	r.at(0, "start all")
}

// end mends everything and, in some scripts, lets a long time pass.
func (r *run) end(at time.Duration) {
	r.mend(at)
	if r.old {
		for n := range r.nodes {
			r.at(at+time.Duration(n)*4*r.unit, "program n%d 0", n+1)
		}
		at += time.Duration(r.nodes)*4*r.unit + 20*r.unit
		r.at(at, "raise maybe")
	}
	for _, topic := range r.missing[:1] {
		r.at(at, "create %s partitions=2", topic)
	}
	if r.far > 0 {
		r.produceFar(at)
		at += 10 * r.unit
		r.at(at, "stop all")
		at += r.far
		r.at(at, "start all")
	}
	if r.unit > time.Second { // what is due much later is not waited for
		r.at(at+r.span(r.unit, r.horizon), "heal")
	}
}

// scene has one of the script's plots happen, with traffic and trouble around it, and
// returns when it is over.
func (r *run) scene(at time.Duration, story plot) time.Duration {
	length := r.span(10*r.unit, 60*r.unit)
	within := func() time.Duration { return at + time.Duration(r.Int64N(int64(length))) }
	for range 1 + r.IntN(6) {
		pick(r, r.shapes...)(r, within())
	}
	for range r.IntN(1 + 2*len(r.troubles)) {
		pick(r, r.troubles...).happen(r, within(), length/3)
	}
	story.happen(r, at, length)
	for range r.IntN(3) {
		r.ambush(within())
	}
	if r.chance(0.8) {
		r.mend(at + length)
	}
	return at + length
}
