package dev

import (
	"context"
	"fmt"
	"os"
	"time"
)

// restartAfter is when a node that has ended is started again: late enough to look at what goes on without it,
// and to end another one.
const restartAfter = 10 * time.Second

// startNode starts node i; mode is as startChild has it. What answers at its address tells nothing of its end:
// it may be another process.
func (d *Cluster) startNode(i, mode int) (*child, error) {
	node, err := startChild(nodeID(i), d.log(nodeID(i)), mode, d.nodeArgs(i)...)
	if err == nil {
		d.running.Add(1)
	}
	return node, err
}

// keepNode starts the node again whenever it ends, until ctx does. It returns an error if the node ends before
// all are ready, since it cannot do its part then, and if no other one runs.
func (d *Cluster) keepNode(ctx context.Context, i int, node *child) error {
	for {
		select {
		case <-node.ended:
		case <-ctx.Done():
			return nil
		}
		running := int(d.running.Add(-1))
		switch {
		case !d.started.Load():
			return node.failure()
		case running == 0 && d.Nodes > 1:
			return fmt.Errorf("no node runs any more: %w", node.failure())
		case running == 0:
			return node.failure()
		}
		d.say("%s ended (%s): %s. It starts again in %v; its log is %s", node.name, node.end(), d.without(node.name, running), restartAfter, node.log)
		select {
		case <-time.After(restartAfter):
		case <-ctx.Done():
			return nil
		}
		again, err := d.startNode(i, os.O_APPEND)
		if err != nil {
			return err
		}
		d.nodes[i], node = again, again
		d.say("%s started again, process %d: %d of %d nodes run", node.name, node.cmd.Process.Pid, d.running.Load(), d.Nodes)
	}
}

// without says what so many nodes can do.
func (d *Cluster) without(name string, running int) string {
	if running > d.Nodes/2 {
		return fmt.Sprintf("%d of %d nodes run, a majority, and go on, after a moment if %s led", running, d.Nodes, name)
	}
	return fmt.Sprintf("%d of %d nodes runs, no majority: nothing is taken in or delivered until another one does", running, d.Nodes)
}

func (d *Cluster) say(text string, args ...any) {
	fmt.Fprintf(d.Out, "%s  %s\n", time.Now().Format(clock), fmt.Sprintf(text, args...))
}
