package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPeers_letInMembersOnly(t *testing.T) {
	inSite(t, func(s *site) {
		ca, foreign := s.authority("ours"), s.authority("theirs")
		n1 := s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), nil)
		s.echo(n1.Listen("tcp", "localhost:1"))
		short := s.issue(ca, time.Minute, "n2")
		for _, test := range []struct {
			what  string
			shown Pair
			want  string // "" lets it in
		}{
			{"one by its id", s.issue(ca, time.Hour, "n2"), ""},
			{"one by its host", s.issue(ca, time.Hour, "two.example"), ""},
			{"one by an id that is no host", s.issue(ca, time.Hour, "n_3"), ""},
			{"one by its host in other letters", s.issue(ca, time.Hour, "Two.Example"), ""},
			{"one by its address", s.issue(ca, time.Hour, "10.0.0.2"), ""},
			{"one of all hosts, which no member is alone", s.issue(ca, time.Hour, "*.example"), "bad certificate"},
			{"one of another address", s.issue(ca, time.Hour, "10.0.0.3"), "bad certificate"},
			{"one of the CA that is no member", s.issue(ca, time.Hour, "n4", "three.example"), "bad certificate"},
			{"one of another CA", s.issue(foreign, time.Hour, "n2"), "certificate required"},
		} {
			n2 := s.node(s.write("n2", ca, test.shown), nil)
			if err := talk(n2, "localhost:1"); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.what, err, test.want)
			}
		}
		n2 := s.node(s.write("n2", ca, short), nil)
		s.pass(61 * time.Second)
		if err := talk(n2, "localhost:1"); err == nil || !strings.Contains(err.Error(), "expired certificate") {
			t.Errorf("one whose certificate has ended: %v", err)
		}
	})
}

func TestPeers_letInNobodyWithoutACertificate(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		ends := s.echo(s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), nil).Listen("tcp", "localhost:1"))
		for what, config := range map[string]*tls.Config{
			"none shown": {InsecureSkipVerify: true},
			"TLS 1.2":    {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
		} {
			c, err := s.dial(s.t.Context(), "tcp", "localhost:1")
			if err != nil {
				t.Fatal(err)
			}
			client := tls.Client(c, config)
			if err := say(client); err == nil {
				t.Errorf("%s: let in", what)
			}
			c.Close()
			if err := <-ends; err == nil {
				t.Errorf("%s: the node saw no error", what)
			}
		}
		c, err := s.dial(s.t.Context(), "tcp", "localhost:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := say(c); err == nil {
			t.Error("without TLS: let in")
		}
		c.Close()
	})
}

func TestPeers_talkToTheMemberThatTheyDialled(t *testing.T) {
	inSite(t, func(s *site) {
		ca, foreign := s.authority("ours"), s.authority("theirs")
		n1 := s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), nil)
		for port, test := range []struct {
			what  string
			shown Pair
			want  string
		}{
			{"itself", s.issue(ca, time.Hour, "n2"), ""},
			{"by its host", s.issue(ca, time.Hour, "two.example"), ""},
			{"by a wildcard", s.issue(ca, time.Hour, "*.example"), ""},
			{"another member", s.issue(ca, time.Hour, "n_3"), `it is for ["n_3"], and ["n2" "two.example" "10.0.0.2"] was dialled`},
			{"one of another CA", s.issue(foreign, time.Hour, "n2"), "certificate signed by unknown authority"},
		} {
			// Its own files make no difference to what it shows.
			other := s.node(s.write("n2", foreign, test.shown), func(o *Options) { o.OnlyMembers = false })
			l, err := s.listen("tcp", fmt.Sprintf("localhost:%d", 20+port))
			if err != nil {
				t.Fatal(err)
			}
			ends := s.echo(other.Over(l), nil)
			n1.o.Names = map[string][]string{l.Addr().String(): names["localhost:2"]}
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
			c, err := n1.Dial(ctx, "tcp", l.Addr().String())
			cancel()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", test.what, err, test.want)
			}
			if err == nil {
				c.Close()
			}
			<-ends
		}
	})
}

// A session that was begun before a change would not be checked against the new CA.
func TestPeers_resumeNoSession(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		shown := s.issue(ca, time.Hour, "n2")
		n1 := s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), nil)
		s.echo(n1.Listen("tcp", "localhost:1"))
		pair, err := tls.X509KeyPair(shown.Cert, shown.Key)
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, ClientSessionCache: tls.NewLRUClientSessionCache(1), ServerName: "n1"}
		for range 3 {
			c, err := s.dial(s.t.Context(), "tcp", "localhost:1")
			if err != nil {
				t.Fatal(err)
			}
			client := tls.Client(c, config)
			if err := say(client); err != nil || client.ConnectionState().DidResume {
				t.Errorf("error %v, resumed: %t", err, client.ConnectionState().DidResume)
			}
			client.Close()
		}
	})
}

func TestPeers_takeAnotherCAWithoutARestart(t *testing.T) {
	inSite(t, func(s *site) {
		before, after := s.authority("before"), s.authority("after")
		n1 := s.node(s.write("n1", before, s.issue(before, time.Hour, "n1")), nil)
		old := s.node(s.write("n2", before, s.issue(before, time.Hour, "n2")), nil)
		s.echo(n1.Listen("tcp", "localhost:1"))
		if err := talk(old, "localhost:1"); err != nil {
			t.Fatal(err)
		}
		var conns []net.Conn
		var ended []time.Time
		closed := make(chan time.Time, 20)
		for range cap(closed) {
			c, err := old.Dial(s.t.Context(), "tcp", "localhost:1")
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
			go func() {
				c.Read(make([]byte, 1))
				closed <- time.Now()
			}()
		}
		s.write("n1", after, s.issue(after, time.Hour, "n1"))
		s.pass(3 * time.Second)
		changed := time.Now()
		if err := talk(old, "localhost:1"); err == nil {
			t.Error("a certificate of the CA from before is let in")
		}
		young := s.node(s.write("n3", after, s.issue(after, time.Hour, "n_3")), nil)
		if err := talk(young, "localhost:1"); err != nil {
			t.Error(err)
		}
		lasting, err := young.Dial(s.t.Context(), "tcp", "localhost:1")
		if err != nil {
			t.Fatal(err)
		}
		for range conns {
			ended = append(ended, <-closed)
		}
		first, last := ended[0].Sub(changed), ended[len(ended)-1].Sub(changed)
		t.Logf("%d connections from before were closed %v to %v after", len(ended), first, last)
		if last > retireWithin || last-first < retireWithin/4 {
			t.Errorf("connections from before were closed %v to %v after: want it within %v, and apart from each other", first, last, retireWithin)
		}
		s.pass(retireWithin)
		if err := say(lasting); err != nil {
			t.Errorf("one from after the change: %v", err)
		}
		for _, c := range append(conns, lasting) {
			c.Close()
		}
	})
}

// The step from plain to TLS, one node after the other: whoever has come how far, all reach all.
func TestPeers_bringTLSInNodeByNode(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		var paths [4]Paths
		for i, id := range []string{"", "n1", "n2", "n_3"} {
			if i > 0 {
				paths[i] = s.write(id, ca, s.issue(ca, time.Hour, id))
			}
		}
		optional := func(o *Options) { o.Optional = true }
		plainDial := func(addr string) error {
			c, err := s.dial(s.t.Context(), "tcp", addr)
			if err != nil {
				return err
			}
			defer c.Close()
			return say(c)
		}
		n1, n2 := s.node(paths[1], optional), s.node(paths[2], nil)
		s.echo(n1.Listen("tcp", "localhost:1"))
		s.echo(n2.Listen("tcp", "localhost:2"))
		// One from before there was TLS hangs up on what it does not know.
		l, err := s.listen("tcp", "localhost:3")
		if err != nil {
			t.Fatal(err)
		}
		s.stop = append(s.stop, func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					var first [1]byte
					if _, err := c.Read(first[:]); err == nil && first[0] != recordHandshake {
						c.Write(first[:])
						io.Copy(c, c)
					}
				}()
			}
		}()
		for what, err := range map[string]error{
			"before -> optional":   plainDial("localhost:1"),
			"optional -> before":   talk(n1, "localhost:3"),
			"optional -> required": talk(n1, "localhost:2"),
			"required -> optional": talk(n2, "localhost:1"),
			"optional -> optional": talk(n1, "localhost:1"),
		} {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, says := range []string{"accepted a connection without TLS", "dialled without TLS"} {
			if !strings.Contains(s.logged(), "level=WARN msg=\""+says) {
				t.Errorf("the log does not say %q:\n%s", says, s.logged())
			}
		}
		if err := talk(n2, "localhost:3"); err == nil {
			t.Error("required -> before: talked without TLS")
		}
		if err := plainDial("localhost:2"); err == nil {
			t.Error("before -> required: talked without TLS")
		}
	})
}

// Who speaks TLS and shows the wrong certificate is no node from before it.
func TestPeers_talkWithoutTLSToNobodyWhoSpeaksIt(t *testing.T) {
	inSite(t, func(s *site) {
		ca, foreign := s.authority("ours"), s.authority("theirs")
		optional := func(o *Options) { o.Optional = true }
		n1 := s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), optional)
		n2 := s.node(s.write("n2", foreign, s.issue(foreign, time.Hour, "n2")), optional)
		s.echo(n2.Listen("tcp", "localhost:2"))
		dials := 0
		n1.o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			return s.dial(ctx, network, addr)
		}
		if err := talk(n1, "localhost:2"); err == nil || dials != 1 {
			t.Errorf("error %v, dialled %d times", err, dials)
		}
	})
}

// What a node says of others is believed of members alone: not of everybody whom an authority has signed.
func TestPeers_tellMembersFromOtherCallers(t *testing.T) {
	inSite(t, func(s *site) {
		ca := s.authority("ours")
		n1 := s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), func(o *Options) { o.OnlyMembers = false })
		either := s.node(s.write("n1", ca, s.issue(ca, time.Hour, "n1")), func(o *Options) { o.OnlyMembers, o.Optional = false, true })
		open := s.write("n3", ca, s.issue(ca, time.Hour, "n_3"))
		open.ClientCA = ""
		n3 := s.node(open, func(o *Options) { o.OnlyMembers = false })
		open.CA = ""
		trusting := s.node(open, func(o *Options) { o.OnlyMembers = false })
		foreign := s.authority("theirs")
		caller, err := ca.IssueCaller("n2", time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for at, test := range []struct {
			what  string
			asked *Peers
			shown Pair
			want  bool
		}{
			{"a member", n1, s.issue(ca, time.Hour, "n2"), true},
			{"a program", n1, s.issue(ca, time.Hour, "billing"), false},
			{"a program of all hosts", n1, s.issue(ca, time.Hour, "*.example"), false},
			{"a program that is called as a member is", n1, caller, false},
			{"a member, where TLS is being brought in", either, s.issue(ca, time.Hour, "n2"), true},
			{"a program, where TLS is being brought in", either, s.issue(ca, time.Hour, "billing"), false},
			{"a member of whom no certificate is wanted", n3, s.issue(ca, time.Hour, "n2"), true},
			{"a program of which none is wanted", n3, s.issue(ca, time.Hour, "billing"), false},
			{"a member of another authority, of whom none is wanted", n3, s.issue(foreign, time.Hour, "n2"), false},
			{"a member, where any authority of the system's counts", trusting, s.issue(ca, time.Hour, "n2"), false},
		} {
			addr := fmt.Sprintf("localhost:%d", 30+at)
			l, err := s.listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan bool, 1)
			over := test.asked.Over(l)
			go func() {
				c, err := over.Accept()
				if err != nil {
					told <- false
					return
				}
				defer c.Close()
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Errorf("%s: %v", test.what, err)
				}
				if secure, ok := c.(*tls.Conn); ok {
					state := secure.ConnectionState()
					told <- test.asked.IsMember(&state)
					return
				}
				told <- test.asked.IsMember(c.(interface{ TLS() *tls.ConnectionState }).TLS())
			}()
			dials := s.node(s.write("n2", ca, test.shown), func(o *Options) {
				o.OnlyMembers, o.Names = false, map[string][]string{addr: {"n1", "n_3"}}
			})
			c, err := dials.Dial(s.t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if got := <-told; got != test.want {
				t.Errorf("%s: %v", test.what, got)
			}
			c.Close()
			l.Close()
		}
		if n1.IsMember(nil) {
			t.Error("without TLS")
		}
	})
}

// A connection outlives a change of the authorities; what is believed of it does not.
func TestPeers_believeNobodyWhoseAuthorityWasTakenOut(t *testing.T) {
	inSite(t, func(s *site) {
		before, after := s.authority("before"), s.authority("after")
		n1 := s.node(s.write("n1", before, s.issue(before, time.Hour, "n1")), func(o *Options) { o.OnlyMembers = false })
		l, err := n1.Listen("tcp", "localhost:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		states := make(chan *tls.ConnectionState, 1)
		go func() {
			c, err := l.Accept()
			if err != nil || c.(*tls.Conn).Handshake() != nil {
				t.Error("no handshake")
			}
			state := c.(*tls.Conn).ConnectionState()
			states <- &state
		}()
		n2 := s.node(s.write("n2", before, s.issue(before, time.Hour, "n2")), func(o *Options) { o.OnlyMembers = false })
		c, err := n2.Dial(s.t.Context(), "tcp", "localhost:1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		state := <-states
		if !n1.IsMember(state) {
			t.Error("not believed while its authority counts")
		}
		s.write("n1", after, s.issue(after, time.Hour, "n1"))
		s.pass(3 * time.Second)
		if n1.IsMember(state) {
			t.Error("believed after its authority was taken out")
		}
	})
}
