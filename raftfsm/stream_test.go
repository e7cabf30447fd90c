package raftfsm

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestStreams_serveOnlyWhatIsForThem(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := streamConfig{
		cluster: "a", advertised: "n1.test:7301", dial: new(net.Dialer).DialContext,
		raftID: func() raft.ServerID { return "n1@7" }, log: testLogger(t),
	}
	server := newStreams(listener, cfg)
	defer server.Close()
	if got := server.Addr().String(); got != "n1.test:7301" {
		t.Errorf("calls itself %s", got)
	}
	heard := make(chan string)
	go func() {
		defer close(heard)
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(c)
			heard <- string(b)
			c.Close()
		}
	}()
	address := raft.ServerAddress(listener.Addr().String())
	for _, tt := range []struct {
		cluster string
		id      raft.ServerID
		want    string
	}{{"a", "n1@7", "hello"}, {"a", "n1", ""}, {"b", "n1@7", ""}} {
		cfg.cluster = tt.cluster
		client := newStreams(nil, cfg)
		c, err := client.Dial(target(tt.id, address), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "hello")
		c.Close()
		if got := <-heard; got != tt.want {
			t.Errorf("for %s of %s: heard %q, want %q", tt.id, tt.cluster, got, tt.want)
		}
	}
	plain, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", string(address))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(plain, "GET / HTTP/1.1\r\n\r\n")
	plain.Close()
	if got := <-heard; got != "" {
		t.Errorf("a stranger was heard: %q", got)
	}
}
