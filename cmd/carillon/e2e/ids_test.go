package e2e

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonmq/carillon/broker"
)

var (
	//go:embed testdata/ids.py
	idsPy []byte
	//go:embed testdata/Ids.java
	idsJava []byte
)

// A program that knows nothing of Carillon but its headers cancels a third of its messages and replaces
// another, while they become due and leaders are killed. What was told to be cancelled or replaced never
// came; all else did.
func TestIDs_cancelledByAForeignClientNeverCome(t *testing.T) {
	t.Parallel()
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		needs(t, "python3")
		python := pythonWithKafka(t)
		script := filepath.Join(t.TempDir(), "ids.py")
		write(t, script, idsPy)
		changeAmongKills(t, func(*kafkaCluster) []string { return []string{python, script} })
	})
	t.Run("Java", func(t *testing.T) {
		t.Parallel()
		program := filepath.Join(t.TempDir(), "Ids.java")
		write(t, program, idsJava)
		changeAmongKills(t, func(k *kafkaCluster) []string { return append(slices.Clip(k.java), program) })
	})
}

// changeAmongKills has a program schedule messages, and then cancel and replace some, and checks what came.
func changeAmongKills(t *testing.T, program func(*kafkaCluster) []string) {
	const messages = 3000
	k, c, l := newStage(t, 1, dirs(t, 3)...)
	due := time.Now().Add(25 * time.Second).UnixMilli() // two JVMs start before, and compile their program
	say := func(what string) []string {
		return append(program(k), what, strings.Join(k.addrs(), ","), delayTopic, strconv.Itoa(messages), strconv.FormatInt(due, 10))
	}
	run(t, ".", nil, say("schedule")...)
	await(t, patience, "most are taken in", func() bool { n, _ := c.pending(); return n > messages*2/3 })
	changing := start(t, "changes", nil, say("change")...)
	await(t, patience, "the changes begin", func() bool { n, known := k.written(delayTopic); return known && n > messages })
	c.leader().process.kill()
	c.leader()
	c.start()
	await(t, patience, "a quarter is delivered", func() bool { return l.delivered() >= messages/4 })
	c.leader().process.kill()
	c.leader()
	c.start()
	await(t, patience, "the changes are produced", func() bool { return !changing.running() })
	if state := changing.cmd.ProcessState; !state.Success() {
		t.Errorf("the changes ended with %v", state)
	}
	await(t, 2*patience, "all due messages are delivered", func() bool {
		pending, known := c.pending()
		return known && pending == 0 && l.has(messages-1) && l.has(2*messages-2)
	})

	l.mu.Lock()
	faults, copies := slices.Clone(l.faults), l.duplicates
	l.mu.Unlock()
	for _, fault := range faults {
		t.Error(fault)
	}
	leader := c.leader()
	var cancelled, replaced int
	for i := range messages {
		ended := c.endings(leader, fmt.Sprint("id-", i))
		cancelled += ended["cancelled"]
		replaced += ended["replaced"]
		if came := l.has(i); came == (ended["cancelled"]+ended["replaced"] > 0) {
			t.Errorf("message %d came: %v, and is told to have ended so: %v", i, came, ended)
		}
		if i%3 == 1 && !l.has(messages+i) {
			t.Errorf("message %d, which came after %d, never came: %v", messages+i, i, ended)
		}
	}
	t.Logf("%d of %d cancelled, %d replaced, %d too late, %d copies", cancelled, messages, replaced, 2*messages/3-cancelled-replaced, copies)
	if cancelled < messages/10 || replaced < messages/10 || cancelled+replaced == 2*messages/3 {
		t.Errorf("%d cancelled and %d replaced of %d prove little", cancelled, replaced, messages)
	}
}

// endings returns how often each thing is told to have become of messages with the id.
func (c *carillonCluster) endings(node *carillonNode, id string) map[string]int {
	c.t.Helper()
	body, err := node.get("/v1/explain?topic=" + delayTopic + "&id=" + id)
	var told broker.Explanation
	if err == nil {
		err = json.Unmarshal(body, &told)
	}
	if err != nil {
		c.t.Fatalf("explain %s: %v", id, err)
	}
	endings := make(map[string]int)
	for _, e := range told.Events {
		endings[e.What]++
	}
	return endings
}

// has reports whether a message has come.
func (l *ledger) has(number int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, came := l.first[number]
	return came
}
