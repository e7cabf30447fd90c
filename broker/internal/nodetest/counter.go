package nodetest

import "sync"

// A Counter counts as broker.Metrics does. The zero value has counted nothing. What it has counted is read when
// nobody counts any more.
type Counter struct {
	mu    sync.Mutex
	Taken int            // messages that are in the log
	By    map[string]int // operations with an id, by what came of them
}

// Accepted counts messages.
func (c *Counter) Accepted(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Taken += n
}

// Answered counts operations.
func (c *Counter) Answered(code string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.By == nil {
		c.By = make(map[string]int)
	}
	c.By[code] += n
}
