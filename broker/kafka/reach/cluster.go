package reach

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// A Cluster remembers which Kafka a node works with, by the id that each Kafka has. Another one behind kafka.brokers,
// such as a mirror, one that was set up anew, or that of another environment, holds other records at the offsets that
// were read: all that its delay topics keep would be scheduled once more, and what is due delivered to it. Any
// goroutine may use a Cluster; a nil one takes every Kafka.
type Cluster struct {
	path string

	mu    sync.Mutex
	id    string // "": none was seen
	noted bool   // in the file
}

// OpenCluster returns what the file of the path remembers. It need not be there, nor its folder, before Kafka is asked.
func OpenCluster(path string) (*Cluster, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read which Kafka was used: %w", err)
	}
	id := strings.TrimSpace(string(text))
	return &Cluster{path: path, id: id, noted: id != ""}, nil
}

// confirm returns an error if this is another Kafka than the first one. A Kafka without an id, which no version that
// we work with is, could be any.
func (c *Cluster) confirm(id *string) error {
	if c == nil || id == nil || *id == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == "" {
		c.id = *id
	}
	if c.id == *id {
		if !c.noted { // as on a disk that is full, on which deliveries go on
			c.noted = replace(c.path, c.id+"\n") == nil
		}
		return nil
	}
	return fmt.Errorf("%w: it calls itself %q, and this node has used %q: name the brokers of that one, or, to read and write this one from now on, stop each node, delete %s and start it: all that the delay topics keep there is scheduled then",
		errOtherKafka, *id, c.id, c.path)
}

func replace(path, text string) error {
	written := path + ".new"
	if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(written, path)
}
