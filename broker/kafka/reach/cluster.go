package reach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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

// Learn asks Kafka which one it is until that is noted; it asks nothing where it is already. A node that does not lead
// asks Kafka nothing else, and would take any for its own when it leads for the first time. It blocks until then, or until
// ctx ends. An error means that the configuration cannot be used.
func (c *Cluster) Learn(ctx context.Context, config Config) error {
	for pause := time.Second; !c.isNoted(); pause = min(2*pause, mostLearnPause) {
		if err := c.askOnce(ctx, config); err != nil {
			return err
		}
		if c.isNoted() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
	return nil
}

// mostLearnPause is the longest wait for a Kafka that does not answer to answer.
const mostLearnPause = time.Minute

func (c *Cluster) askOnce(ctx context.Context, config Config) error {
	options, err := config.Options()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return fmt.Errorf("create Kafka client: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, _ = NewQuestions(client, c).Ask(ctx, forNothing) // what comes of it is noted
	return nil
}

func (c *Cluster) isNoted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noted
}

func replace(path, text string) error {
	written := path + ".new"
	if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(written, path)
}
