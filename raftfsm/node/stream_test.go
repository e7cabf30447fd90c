package node

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestStreams_serveOnlyWhatIsForThem(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	succeeded := make(chan raft.ServerID, 1)
	cfg := streamConfig{
		cluster: "a", advertised: "n1.test:7301", dial: new(net.Dialer).DialContext,
		raftID: func() raft.ServerID { return "n1@7" }, succeededBy: func(id raft.ServerID) { succeeded <- id }, patience: time.Minute, log: testLogger(t),
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
		cluster   string
		id        raft.ServerID
		want      string
		succeeded bool
	}{
		{cluster: "a", id: "n1@7", want: "hello"}, {cluster: "a", id: "n1"}, {cluster: "b", id: "n1@7"}, {cluster: "a", id: ""},
		{cluster: "a", id: "n1@10", succeeded: true}, {cluster: "b", id: "n1@10"}, {cluster: "a", id: "n2@10"}, {cluster: "a", id: "n1@6"},
		{cluster: "a", id: "n1@99999999999999999999"}, {cluster: "a", id: "n1@8x"},
	} {
		cfg.cluster = tt.cluster
		client := newStreams(nil, cfg)
		c, err := client.Dial(peerAt(tt.id, address), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "hello")
		c.Close()
		if got := <-heard; got != tt.want {
			t.Errorf("for %s of %s: heard %q, want %q", tt.id, tt.cluster, got, tt.want)
		}
		if got := len(succeeded) > 0; got != tt.succeeded {
			t.Errorf("for %s of %s: succeeded %v, want %v", tt.id, tt.cluster, got, tt.succeeded)
		}
		for len(succeeded) > 0 {
			<-succeeded
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

// streamsOn returns the streams of n1, at localhost:7301 of the network, and those of one who dials it.
func streamsOn(t *testing.T, network *kfake.VirtualNetwork) (server, client *streams) {
	listener, err := network.Listen("tcp", "localhost:7301")
	if err != nil {
		t.Fatal(err)
	}
	server = newStreams(listener, streamConfig{
		cluster: "a", raftID: func() raft.ServerID { return "n1" }, patience: 3 * time.Second, log: testLogger(t),
	})
	return server, newStreams(nil, streamConfig{cluster: "a", dial: network.DialContext})
}

// A port scan, or half a connection after a power cut.
func TestStreams_hangUpOnWhoSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		server, client := streamsOn(t, &network)
		defer server.Close()
		for _, tt := range []struct {
			name  string
			dial  func() (net.Conn, error)
			waits time.Duration
		}{
			{"silent", func() (net.Conn, error) { return network.DialContext(t.Context(), "tcp", "localhost:7301") }, 3 * time.Second},
			// Once it has greeted, it may say nothing for as long as it likes.
			{"greets", func() (net.Conn, error) { return client.Dial(peerAt("n1", "localhost:7301"), time.Second) }, time.Hour},
		} {
			go func() {
				c, err := tt.dial()
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
					return
				}
				time.Sleep(time.Hour)
				c.Close()
			}()
			c, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if _, err := c.Read(make([]byte, 1)); err == nil || time.Since(begin) != tt.waits {
				t.Errorf("%s: %v after %s, want an error after %s", tt.name, err, time.Since(begin), tt.waits)
			}
			c.Close()
		}
		time.Sleep(time.Hour)
	})
}

// Raft leaves connections open whose requests it does not take, and the other side dials again and again.
func TestStreams_boundWhatRaftLeavesOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		server, client := streamsOn(t, &network)
		defer server.Close()
		accept := func() (c net.Conn, heard bool) {
			go func() {
				c, err := client.Dial(peerAt("n1", "localhost:7301"), time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(c, "x") // refused at once, perhaps
			}()
			c, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Read(make([]byte, 1))
			return c, err == nil
		}
		var last net.Conn
		for i := range mostGreeted {
			var heard bool
			if last, heard = accept(); !heard {
				t.Fatalf("the connection %d is refused", i+1)
			}
		}
		more, heard := accept()
		if heard {
			t.Error("one too many is heard")
		}
		more.Close()
		last.Close()
		if _, heard := accept(); !heard {
			t.Error("one is refused though another was closed")
		}
	})
}
