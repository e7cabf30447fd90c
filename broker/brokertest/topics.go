package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/carillonmq/carillon/broker/brokertest/ledger"
	"github.com/carillonmq/carillon/broker/report"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
)

// createTopic creates a topic, or count of them with a number in place of the %.
func (p *player) createTopic(name string, a arguments) error {
	partitions, err := strconv.Atoi(a.value("partitions", "1"))
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(a.value("count", "1"))
	if err != nil {
		return err
	}
	names := make([]string, count)
	for i := range names {
		names[i] = strings.ReplaceAll(name, "%", strconv.Itoa(i))
	}
	user, admin := p.user()
	defer user.Close()
	answers, err := admin.CreateTopics(context.Background(), int32(partitions), 1, nil, names...)
	if err != nil {
		return err
	}
	did := errNoEffect
	for topic, answer := range answers {
		if errors.Is(answer.Err, kerr.TopicAlreadyExists) {
			continue
		}
		if answer.Err != nil {
			return fmt.Errorf("create %s: %w", topic, answer.Err)
		}
		p.observer.exists(topic)
		did = nil
	}
	return did
}

// deleteTopic deletes a topic. What was not taken in yet of a delay topic is gone; what is in another one was read by its
// consumers before.
func (p *player) deleteTopic(name string) error {
	if p.kafka.TopicInfo(name) == nil {
		return errNoEffect
	}
	if isDelayTopic(name) {
		for _, partition := range p.kafka.PartitionInfos(name) {
			p.goneFrom(name, partition.Partition, math.MaxInt64)
		}
		return p.kafka.DeleteTopic(name)
	}
	var err error
	p.faults.keepBack(name, func() {
		p.deleted = append(p.deleted, p.read(name)...)
		err = p.kafka.DeleteTopic(name)
	})
	return err
}

// recreateTopic deletes a topic and creates it again, with as many partitions if not told otherwise.
func (p *player) recreateTopic(name string, a arguments) error {
	had := len(p.kafka.PartitionInfos(name))
	if err := p.deleteTopic(name); err != nil {
		return err
	}
	a.values["partitions"] = a.value("partitions", strconv.Itoa(had))
	return p.createTopic(name, a)
}

// addPartitions gives a topic so many partitions.
func (p *player) addPartitions(name string, a arguments) error {
	n, err := strconv.Atoi(a.word(1))
	if err != nil {
		return err
	}
	had := len(p.kafka.PartitionInfos(name))
	if had == 0 || n <= had {
		return errNoEffect
	}
	p.observer.struck(ledger.Fault{Kind: "partitions", Topic: name, From: time.Now(), Partitions: int32(had)})
	user, admin := p.user()
	defer user.Close()
	answers, err := admin.UpdatePartitions(context.Background(), n, name)
	if err == nil {
		err = answers.Error()
	}
	return err
}

// trimTopic deletes all but the newest records of each partition of a topic, as retention does: as many are kept as is said,
// or none.
func (p *player) trimTopic(name string, a arguments) error {
	keep, err := strconv.ParseInt(a.value("keep", "0"), 10, 64)
	if err != nil {
		return err
	}
	trimmed := errNoEffect
	for _, partition := range p.kafka.PartitionInfos(name) {
		to := partition.HighWatermark - keep
		if to <= partition.LogStartOffset {
			continue
		}
		p.goneFrom(name, partition.Partition, to)
		if err := p.kafka.DeleteRecords(name, partition.Partition, to); err != nil {
			return err
		}
		trimmed = nil
	}
	return trimmed
}

// goneFrom notes the records of a partition up to an offset that are about to be deleted and that no node has taken
// in, as far as is known: they may be lost.
func (p *player) goneFrom(topic string, partition int32, to int64) {
	info := p.kafka.TopicInfo(topic)
	if info == nil {
		return
	}
	taken := p.takenIn(info.TopicID)
	for i := range p.produced {
		r := &p.produced[i]
		if r.topicID == info.TopicID && r.partition == partition && !r.lost && r.offset >= taken[partition] && r.offset < to {
			r.gone = true
		}
	}
}

// takenIn returns up to where the topic's partitions were taken in, as far as the nodes that run know.
func (p *player) takenIn(topicID [16]byte) map[int32]int64 {
	next := make(map[int32]int64)
	for _, n := range p.nodes {
		raft := n.raft()
		if raft == nil {
			continue
		}
		for _, position := range raft.Store().State().Positions {
			if position.TopicID == topicID {
				next[position.Partition] = max(next[position.Partition], p.faults.read(position))
			}
		}
	}
	return next
}

func partitions(admin *kadm.Client, topic string) (int, error) {
	details, err := admin.ListTopics(context.Background(), topic)
	if err != nil {
		return 0, err
	}
	if err := details.Error(); err != nil {
		return 0, err
	}
	return len(details[topic].Partitions), nil
}

// limitTopic has a topic take no batch of records that is larger.
func (p *player) limitTopic(name, bytes string) error {
	if p.kafka.TopicInfo(name) == nil {
		return errNoEffect
	}
	p.limited[name] = true
	return p.alterTopic(name, kadm.AlterConfig{Op: kadm.SetConfig, Name: maxMessageBytes, Value: &bytes})
}

func (p *player) unlimitTopic(name string) error {
	delete(p.limited, name)
	if p.kafka.TopicInfo(name) == nil {
		return nil
	}
	return p.alterTopic(name, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: maxMessageBytes})
}

const maxMessageBytes = "max.message.bytes"

func (p *player) alterTopic(name string, change kadm.AlterConfig) error {
	user, admin := p.user()
	defer user.Close()
	answers, err := admin.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{change}, name)
	if err != nil {
		return err
	}
	_, err = answers.On(name, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	return err
}

// wellTopic ends what is wrong with a topic.
func (p *player) wellTopic(name string) error {
	err := p.faults.well(name)
	if p.limited[name] {
		return p.unlimitTopic(name)
	}
	return err
}

// elect gives the partitions of a topic another leader. One that is behind answers questions about
// offsets for a while as it would without the newest records, until one that has them leads again.
func (p *player) elect(name string, a arguments) error {
	if p.kafka.TopicInfo(name) == nil {
		return errNoEffect
	}
	user, admin := p.user()
	defer user.Close()
	set := make(kadm.TopicsSet)
	for _, partition := range p.kafka.PartitionInfos(name) {
		set.Add(name, partition.Partition)
	}
	if _, err := admin.ElectLeaders(context.Background(), kadm.ElectPreferredReplica, set); err != nil {
		return err
	}
	if p.kafkaDir != "" {
		p.faults.beganEpochs(name)
	}
	behind, err := strconv.ParseInt(a.value("behind", "0"), 10, 64)
	if err != nil || behind == 0 {
		return err
	}
	if slices.ContainsFunc(p.nodes, p.doubts) {
		return nil // another one was elected: a second lie would confirm the first
	}
	return p.faults.lag(name, behind, p.span(a.value("lasts", "1s")), user)
}

// doubts reports whether the node, while it leads, may not have heard that all it has read is there: Kafka did not
// answer since it said otherwise, or says otherwise. A node that says it doubts although it must have heard is not
// believed: that it forgets its doubt is what another lie looks into.
func (p *player) doubts(n *node) bool {
	if !n.running() || !n.leads.Load() {
		return false
	}
	if n.frozen.Load() {
		return true // nobody knows
	}
	reading := n.broker.Status().Reading
	if reading == nil || reading.Partitions[report.StateUnavailable] > 0 {
		return reading != nil
	}
	return reading.Partitions[report.StateDoubtful] > 0 && !p.truthIsHeard()
}

// truthIsHeard reports whether Kafka has told nothing but the truth for so long, with nothing in the way to the nodes or
// on their disks, that whoever leads has asked more than once.
func (p *player) truthIsHeard() bool {
	isIll := func(n *node) bool { return !n.files.isWell() }
	if !p.network.whole() || slices.ContainsFunc(p.nodes, isIll) {
		return false
	}
	since := p.faults.untrueUntil()
	if changed := p.network.changedAt(); changed.After(since) {
		since = changed
	}
	looks := min(6*p.config.Raft.Heartbeat, time.Minute) // are so far apart at most: a node may have twice the heartbeat
	return time.Since(since) > unanswered+4*looks
}

// pauseOrResume asks the leader to, if there is one now. Where the answer does not come, or tells of doubt,
// it may be so or not; so it counts as a pause that lasts.
func (p *player) pauseOrResume(verb, kind, name string) error {
	leader := p.find("leader")
	if leader == nil {
		return errNoEffect
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+5*p.config.Raft.Heartbeat)
	defer cancel()
	what := client.Pause{Kind: kind, Name: name, Who: "script", Why: "to see what comes of it"}
	var changed bool
	var err error
	p.while(func() {
		if verb == "resume" {
			change, failed := leader.broker.Resume(ctx, what)
			changed, err = change.Changed, failed
			return
		}
		_, err = leader.broker.Pause(ctx, what)
		changed = true
		if errors.Is(err, raftfsm.ErrInDoubt) {
			err = nil
		}
	})
	if err != nil || !changed {
		return errNoEffect
	}
	return nil
}

// resumeAll ends all pauses. Nothing is wrong any more, so it can be done.
func (p *player) resumeAll() {
	p.await(10*time.Minute, "the end of all pauses", func() bool {
		leader := p.find("leader")
		if leader == nil {
			return false
		}
		for _, paused := range leader.broker.Status().Paused {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second+5*p.config.Raft.Heartbeat)
			_, err := leader.broker.Resume(ctx, paused)
			if cancel(); err != nil {
				return false
			}
		}
		return len(leader.broker.Status().Paused) == 0
	})
	p.observer.resumedAll()
}
