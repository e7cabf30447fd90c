// Package digest logs what comes in crowds, a line a second at most.
package digest

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// digestEvery is the least time between two lines of a digest.
const digestEvery = time.Second

// A Digest logs what may come for thousands of topics at once: the first at once, and
// then a line a second at most, with the counts since the last one. Any goroutine may use it.
//
//	add --> a line
//	add, add, add --a second after that line--> one line for the three
type Digest struct {
	log   *slog.Logger
	level slog.Level
	text  string

	mu      sync.Mutex
	records int
	topics  map[string]struct{}
	last    []any       // attributes of the last
	timer   *time.Timer // runs for digestEvery after each line; nil: none was needed yet
}

// New returns a digest that logs the text at the level. Close it.
func New(log *slog.Logger, level slog.Level, text string) *Digest {
	return &Digest{log: log, level: level, text: text, topics: make(map[string]struct{})}
}

// Add counts records of a topic. The attributes are told of the last ones only.
func (d *Digest) Add(topic string, records int, attributes ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records += records
	d.topics[topic] = struct{}{}
	d.last = append([]any{"topic", topic}, attributes...)
	if d.timer == nil {
		d.tell()
		d.timer = time.AfterFunc(digestEvery, d.ring)
	}
}

// ring tells what has come since the last line. After a second without anything the
// next one is told at once again.
func (d *Digest) ring() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.timer == nil: // closed meanwhile
	case d.records == 0:
		d.timer = nil
	default:
		d.tell()
		d.timer.Reset(digestEvery)
	}
}

// Close tells what is left. Nothing is added afterwards.
func (d *Digest) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.records > 0 {
		d.tell()
	}
}

func (d *Digest) tell() {
	d.log.Log(context.Background(), d.level, d.text, append([]any{"records", d.records, "topics", len(d.topics)}, d.last...)...)
	d.records = 0
	clear(d.topics)
}
