package brokertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Whom a bad link harms is what excuses ends of terms, copies and delays: as few as account for it.
func TestNetwork_tellsWhomBadLinksHarm(t *testing.T) {
	nodes, kafka := []string{"n1", "n2", "n3"}, []string{kafkaHost, kafkaHost + "2"}
	for name, test := range map[string]struct {
		leader string
		change func(n *network)
		want   []string
	}{
		"none is bad":                      {"n1", func(*network) {}, nil},
		"a follower apart from its leader": {"n1", func(n *network) { n.set(cut, "n3", "n1") }, []string{"n3"}},
		"a follower that hears nothing":    {"n1", func(n *network) { n.setOneway(silent, "n3", "n1", "n2", kafkaHost) }, []string{"n3"}},
		"two followers apart":              {"n1", func(n *network) { n.set(cut, "n3", "n2") }, []string{"n2"}},
		"the leader apart from both":       {"n1", func(n *network) { n.set(silent, "n1", nodes...) }, []string{"n1"}},
		"a follower apart from both":       {"n1", func(n *network) { n.set(silent, "n3", nodes...) }, []string{"n3"}},
		"all apart":                        {"n1", func(n *network) { n.set(cut, "n3", nodes...); n.set(cut, "n1", "n2") }, []string{"n1", "n2"}},
		"nobody leads":                     {"", func(n *network) { n.set(cut, "n3", nodes...) }, []string{"n3"}},
		"a follower apart from a broker":   {"n1", func(n *network) { n.set(cut, "n2", kafkaHost+"2") }, []string{"n2"}},
		"the leader apart from Kafka, and a follower from it": {"n2", func(n *network) {
			n.set(cut, "n2", kafkaHost)
			n.set(cut, "n2", "n1")
		}, []string{"n1", "n2"}},
		"a host that is down": {"n1", func(n *network) { n.setHost(cut, "n2") }, nil},
	} {
		n := newNetwork()
		test.change(n)
		got := n.hindered(nodes, kafka, test.leader)
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: harms %v, want %v", name, got, test.want)
		}
	}
}

// What is said over a silent link is neither heard before it speaks, nor lost, whatever deadlines pass meanwhile.
func TestNetwork_aSilentLinkHoldsWhatIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		listener, err := n.listenKafka("tcp", "127.0.0.1:9092")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		accepted := make(chan net.Conn, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- conn
		}()
		near, err := n.dial("n1")(context.Background(), "tcp", "127.0.0.1:9092")
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far := <-accepted
		defer far.Close()

		n.set(silent, "n1", kafkaHost)
		go func() {
			if _, err := far.Write([]byte("an answer")); err != nil {
				t.Error(err)
			}
		}()
		start := time.Now()
		deadline := func(after time.Duration) {
			if err := near.SetReadDeadline(time.Now().Add(after)); err != nil {
				t.Error(err)
			}
		}
		deadline(time.Minute)
		time.AfterFunc(time.Second, func() { deadline(0) }) // heard by a reader that waits
		answer := make([]byte, len("an answer"))
		if read, err := io.ReadFull(near, answer); read != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("read %d bytes after %v, error %v, want none after 1s, and that the deadline passed", read, time.Since(start), err)
		}

		deadline(time.Minute)
		time.AfterFunc(2*time.Second, func() { n.set(open, "n1", kafkaHost) })
		for i := range answer { // held for several reads
			if _, err := near.Read(answer[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if string(answer) != "an answer" || time.Since(start) != 3*time.Second {
			t.Errorf("read %q after %v, want all after 3s", answer, time.Since(start))
		}
	})
}
