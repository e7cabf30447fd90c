package reach

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// doubtAfter is how long Kafka has for an answer that it need not wait for, before its broker is asked for a sign of life.
	doubtAfter = 100 * time.Millisecond
	// leastSilence is how long a Kafka broker has for that sign at least; one that is far away or busy has four times as
	// long as its last one took. Then it is silent.
	leastSilence = 150 * time.Millisecond
	// signTimeout is when a sign that has not come is asked for anew, and one of a broker that is down.
	signTimeout = 5 * time.Second
	// signMaxAge is for how long one slow sign gives a broker more than leastSilence.
	signMaxAge = time.Minute
	// forgetAfter is when a broker that nobody connects to is asked for no more signs: its address may be gone for good. Clients
	// use each address that they know every 4 minutes.
	forgetAfter = 15 * time.Minute
)

// A Hearing knows which Kafka brokers are silent: frozen, cut off or hanging. All clients of franz-go that share one
// dial through it.
//
// franz-go asks whichever broker it likes for metadata and for a producer id, and waits for it for requestTimeout though
// others would answer at once. A record that needs one of them, the first of its topic or of its client, fails meanwhile.
// So what a silent broker owes is cut off, and no connection to it is opened: then franz-go asks the next one.
//
//	heard --no answer for doubtAfter--> doubted --no sign either--> silent: cut off, and not dialed
//	  ^                                    |                           |
//	  '------------ a sign of life --------'---------------------------'
//
// A slow answer is none of this: whoever gives signs of life is waited for. It takes no request to end a silence, since the
// sign is asked for until it comes, or nobody has connected for forgetAfter.
type Hearing struct {
	open  dialFunc
	log   *slog.Logger
	ctx   context.Context // ends with Close
	end   context.CancelFunc
	signs sync.WaitGroup // those that are asked for

	mu      sync.Mutex
	brokers map[string]*heardBroker // by address
}

type heardBroker struct {
	address string
	waits   map[*wait]struct{} // for an answer
	doubted bool               // it is being asked for a sign
	silent  bool
	failed  bool          // the last connection to it was not opened
	open    int           // connections
	grace   time.Duration // how long a sign may take
	renewal *time.Timer   // asks for a sign anew, signMaxAge after a slow one, signTimeout after a failure
	asked   time.Time     // when a connection or an answer was last wanted of it
}

// A wait is for an answer that Kafka gives at once.
type wait struct {
	broker *heardBroker
	cut    func(*wait) // ends it, if it has not ended
	timer  *time.Timer
}

func newHearing(open dialFunc, log *slog.Logger) *Hearing {
	h := &Hearing{open: open, log: log, brokers: make(map[string]*heardBroker)}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// Close ends all questions for signs, and waits for that.
func (h *Hearing) Close() {
	h.mu.Lock() // no sign is asked for after this
	h.end()
	h.mu.Unlock()
	h.signs.Wait()
}

// dial opens a connection, unless the Kafka broker is silent.
func (h *Hearing) dial(asked context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	var cut atomic.Bool
	w := h.await(address, func(*wait) { cut.Store(true); cancel() })
	if w == nil {
		return nil, refusal(address)
	}
	defer h.answered(w)
	conn, err := h.open(ctx, network, address)
	h.mu.Lock()
	if err == nil {
		w.broker.open++
		w.broker.failed = false
	} else if asked.Err() == nil { // else the client was closed, and that says nothing
		h.fail(w.broker)
	}
	h.mu.Unlock()
	switch {
	case err != nil && cut.Load():
		return nil, refusal(address)
	case err != nil:
		return nil, err
	}
	return &heardConn{Conn: conn, hearing: h, address: address, closed: sync.OnceFunc(func() { h.closed(w.broker) })}, nil
}

// leastSeeds is how many addresses a new client is given if so many are known.
const leastSeeds = 3

// Seeds returns by which addresses a new client finds Kafka: franz-go knows no more than these until one of them has
// answered. They are the configured ones, and where those that answer are fewer than leastSeeds, others that clients have
// learned of and are connected to: whoever else has an address by now may be another Kafka. Configured ones that do not
// answer come last: a refusal sends franz-go on to the next, and when all brokers have new addresses these alone lead there.
func (h *Hearing) Seeds(configured []string) (seeds []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var silent, others []string
	for _, address := range configured {
		if b := h.brokers[address]; b == nil || b.answers() {
			seeds = append(seeds, address)
		} else {
			silent = append(silent, address)
		}
	}
	for address, b := range h.brokers {
		if b.open > 0 && b.answers() && !slices.Contains(configured, address) {
			others = append(others, address)
		}
	}
	slices.Sort(others)
	seeds = append(seeds, others[:min(len(others), max(leastSeeds, len(configured))-len(seeds))]...)
	return append(seeds, silent...)
}

// Unreached returns those of the addresses that do not answer, or did not when they were connected to last.
func (h *Hearing) Unreached(addresses []string) (unreached []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, address := range addresses {
		if b := h.brokers[address]; b != nil && !b.answers() {
			unreached = append(unreached, address)
		}
	}
	return unreached
}

// answers tells whether the Kafka broker can be connected to, as far as is known. The caller holds the Hearing's mu.
func (b *heardBroker) answers() bool { return !b.silent && !b.failed }

// closed notes that a connection was closed.
func (h *Hearing) closed(b *heardBroker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b.open--
}

// refusal is a failure to connect: franz-go then goes on to the next Kafka broker, and learns who leads now.
func refusal(address string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: namedAddress(address), Err: errSilent}
}

type namedAddress string

func (namedAddress) Network() string  { return "tcp" }
func (a namedAddress) String() string { return string(a) }

// await begins to wait for an answer. cut is called, perhaps too late, when the broker falls silent. It returns nil when
// it is silent already.
func (h *Hearing) await(address string, cut func(*wait)) *wait {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.brokers[address]
	if b == nil {
		b = &heardBroker{address: address, waits: make(map[*wait]struct{}), grace: leastSilence}
		b.renewal = time.AfterFunc(signMaxAge, func() { h.renew(b) })
		h.brokers[address] = b
	}
	b.asked = time.Now()
	if b.silent {
		return nil
	}
	w := &wait{broker: b, cut: cut}
	b.waits[w] = struct{}{}
	pause := doubtAfter
	w.timer = time.AfterFunc(pause, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, waits := b.waits[w]; waits && h.ctx.Err() == nil {
			h.doubt(b)
			pause *= 2 // it may fall silent later
			w.timer.Reset(pause)
		}
	})
	return w
}

// answered ends a wait.
func (h *Hearing) answered(w *wait) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(w.broker.waits, w)
	w.timer.Stop()
}

// doubt has the broker asked for a sign of life. The caller holds mu.
func (h *Hearing) doubt(b *heardBroker) {
	if !b.doubted {
		b.doubted = true
		h.signs.Go(func() { h.listen(b) })
	}
}

// fail notes that a connection was not opened. Signs tell when one can be, for the clients may not try for minutes. The caller
// holds mu.
func (h *Hearing) fail(b *heardBroker) {
	if !b.failed {
		b.failed = true
		b.renewal.Reset(signTimeout)
	}
}

// renew has the broker asked for a sign of life if it was down, or if its last one was slow. One that was slow once would else
// be waited for as long hours later, when it freezes.
func (h *Hearing) renew(b *heardBroker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if (b.failed || b.grace > leastSilence) && h.ctx.Err() == nil {
		h.doubt(b)
	}
}

// forget lets go of a broker that nobody has wanted anything of for forgetAfter, and reports whether it did. Whoever dials it at
// this moment has noted that in asked before we hold mu, and it is kept; or looks for it after us, and makes another one, which
// has signs of its own. Nobody else has this one any more: dialing ends long before forgetAfter, and all other waits are for
// answers on open connections. Its renewal finds it doubted, and does nothing.
func (h *Hearing) forget(b *heardBroker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.open > 0 || time.Since(b.asked) < forgetAfter {
		return false
	}
	delete(h.brokers, b.address)
	if b.silent {
		h.log.Info("Kafka broker that does not answer is asked no more: nobody connects to it", "broker", b.address)
	}
	return true
}

// listen asks a broker for signs of life until one comes in time. The first one that ends a silence tells
// nothing of how fast the broker is now, so one more is asked for. An error is one if it comes in time, as when the broker's port
// is closed: that there is no such machine any more is told after some 3 s, and is the same silence.
func (h *Hearing) listen(b *heardBroker) {
	isDown := false // and was silent before
	told := false   // which error comes too late to be a sign
	for h.ctx.Err() == nil && !h.forget(b) {
		var came bool // guarded by mu
		start := time.Now()
		h.mu.Lock()
		late := time.AfterFunc(b.grace, func() { h.silence(b, &came) })
		h.mu.Unlock()
		err := h.sign(b.address)
		inTime := late.Stop()
		if h.ctx.Err() != nil { // the sign was cut short by Close
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil && !inTime {
			if !told {
				h.log.Warn("Kafka broker that does not answer cannot be connected to either", "broker", b.address, "error", err)
				told = true
			}
			select {
			case <-h.ctx.Done():
			case <-time.After(time.Until(start.Add(signTimeout))):
			}
			continue
		}
		h.mu.Lock()
		came = true
		was := b.silent
		b.silent, b.doubted, b.failed = false, was, err != nil
		b.renewal.Reset(signTimeout)
		if err == nil { // else it is down: whoever dials is told so at once
			b.grace = min(max(4*time.Since(start), leastSilence), signTimeout)
			b.renewal.Reset(signMaxAge)
		}
		h.mu.Unlock()
		switch {
		case err == nil && (was || isDown):
			h.log.Info("Kafka broker answers again", "broker", b.address)
		case was:
			h.log.Warn("Kafka broker is down: it was silent, and now refuses or ends connections", "broker", b.address, "error", err)
		}
		if !was {
			return
		}
		isDown = err != nil
	}
}

// silence cuts off what a broker owes, unless its sign came.
func (h *Hearing) silence(b *heardBroker, came *bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *came || b.silent {
		return
	}
	b.silent = true
	h.log.Warn("Kafka broker does not answer: others are asked what any can tell", "broker", b.address, "owes", len(b.waits))
	for w := range b.waits {
		w.timer.Stop()
		go w.cut(w) // beside us: it takes the lock of whoever waits
	}
	clear(b.waits)
}

// sign asks for what each Kafka broker tells anybody, on a connection of its own.
func (h *Hearing) sign(address string) error {
	ctx, cancel := context.WithTimeout(h.ctx, signTimeout)
	defer cancel()
	conn, err := h.open(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	until, _ := ctx.Deadline()
	if err := conn.SetDeadline(until); err != nil {
		return err
	}
	defer context.AfterFunc(h.ctx, func() { conn.Close() })()
	question := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 0)
	if _, err := conn.Write(question); err != nil {
		return err
	}
	var length [4]byte
	_, err = conn.Read(length[:])
	return err
}

// A heardConn tells the hearing what it waits for. It knows that from franz-go, which sets a deadline before it reads
// an answer, and takes it back when it has it.
type heardConn struct {
	net.Conn
	hearing *Hearing
	address string
	closed  func()      // tells the hearing once
	patient atomic.Bool // Kafka takes its time for what was asked last

	mu    sync.Mutex
	waits *wait
	cut   bool // for good
}

// Write sends one request: its length and then its kind, 4 and 2 bytes.
func (c *heardConn) Write(request []byte) (int, error) {
	if len(request) >= 6 {
		kind := kmsg.Key(binary.BigEndian.Uint16(request[4:]))
		c.patient.Store(kind == kmsg.Produce || kind == kmsg.Fetch)
	}
	return c.Conn.Write(request)
}

func (c *heardConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopWaiting()
	if !at.IsZero() && !c.patient.Load() && !c.cut {
		c.waits = c.hearing.await(c.address, c.cutOff)
		c.cut = c.waits == nil
	}
	if c.cut {
		at = time.Unix(0, 1) // long ago
	}
	return c.Conn.SetReadDeadline(at)
}

func (c *heardConn) Close() error {
	c.mu.Lock()
	c.stopWaiting()
	c.mu.Unlock()
	c.closed()
	return c.Conn.Close()
}

// stopWaiting ends the wait. The caller holds mu.
func (c *heardConn) stopWaiting() {
	if c.waits != nil {
		c.hearing.answered(c.waits)
		c.waits = nil
	}
}

// cutOff ends the reading of an answer that is still waited for.
func (c *heardConn) cutOff(w *wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits == w {
		c.cut = true
		_ = c.Conn.SetReadDeadline(time.Unix(0, 1)) // fails only where the connection is closed, and nobody reads
	}
}
