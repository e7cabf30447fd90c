package brokertest

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/clienttest/conformance"
)

// An apiTest is a cluster whose nodes serve their API in the network of the bubble.
type apiTest struct {
	*player
	admin *client.Admin
	http.RoundTripper
	transport http.RoundTripper // of who asks
	callers   api.Callers       // who may ask the nodes that are served from now on
	servers   map[*node]*http.Server
}

// testAPI plays in a cluster with these topics, which is as the settings of a script say.
func testAPI(t *testing.T, settings, topics []string, play func(*apiTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, parseArguments(append(settings, "nodes=3")))
		defer c.stop()
		x := &apiTest{player: newPlayer(c, NewReport()), callers: api.Anyone(), servers: make(map[*node]*http.Server)}
		for _, topic := range topics {
			c.must(x.createTopic(topic, arguments{}))
		}
		c.must(x.each("all", (*node).start, func(n *node) bool { return !n.running() }))
		c.leader()
		x.pause(5 * time.Second)
		var addresses []string
		for _, n := range c.nodes {
			x.serve(n)
			addresses = append(addresses, n.member.API)
		}
		defer func() {
			for _, n := range c.nodes {
				x.silence(n)
			}
		}()
		transport := &http.Transport{DialContext: c.network.dial(userHost), IdleConnTimeout: time.Second}
		x.transport = transport
		admin, err := client.NewAdmin(addresses, client.AdminOptions{Transport: transport})
		c.must(err)
		defer admin.Close()
		x.admin, x.RoundTripper = admin, toFirst{transport, addresses[0]}
		play(x)
	})
}

// toFirst carries requests to one node, whatever their host.
type toFirst struct {
	*http.Transport
	address string
}

func (t toFirst) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.URL.Host = t.address
	return t.Transport.RoundTrip(sent)
}

// serve has a node that runs answer at its address, to the callers. It reaches the leader through the network of
// the bubble.
func (x *apiTest) serve(n *node) {
	x.t.Helper()
	listener, err := x.network.listen(n.member.ID)("tcp", n.member.API)
	x.must(err)
	callers := x.callers
	callers.Leader.Dial = x.network.dial(n.member.ID)
	server := &http.Server{Handler: api.NewHandler(n.broker, n.metrics, callers, x.log)}
	x.servers[n] = server
	go server.Serve(listener)
}

// silence ends what serve began.
func (x *apiTest) silence(n *node) {
	if server := x.servers[n]; server != nil {
		server.Close()
		delete(x.servers, n)
	}
}

// Admin is for a conformance.World, and so are the others.
func (x *apiTest) Admin() *client.Admin { return x.admin }

func (x *apiTest) Now() time.Time { return time.Now() }

func (x *apiTest) Advance(d time.Duration) { x.pause(d) }

func (x *apiTest) Produce(r *client.Record) *client.Record {
	x.t.Helper()
	user, _ := x.user()
	defer user.Close()
	x.must(user.ProduceSync(context.Background(), r).FirstErr())
	return r
}

func (x *apiTest) Delivered() []*client.Record {
	x.t.Helper()
	user, admin := x.user()
	defer user.Close()
	ends, err := admin.ListEndOffsets(context.Background())
	x.must(err)
	from := make(map[string]map[int32]kgo.Offset)
	remaining := 0
	ends.Each(func(o kadm.ListedOffset) {
		if !isDelayTopic(o.Topic) && o.Topic != x.config.DeadLetter.Topic && o.Offset > 0 {
			from[o.Topic] = map[int32]kgo.Offset{o.Partition: kgo.NewOffset().AtStart()} // each has one partition
			remaining += int(o.Offset)
		}
	})
	if remaining == 0 {
		return nil
	}
	reader, _ := x.user(kgo.ConsumePartitions(from))
	defer reader.Close()
	var all []*client.Record
	for len(all) < remaining {
		fetches := reader.PollFetches(context.Background())
		x.must(fetches.Err())
		all = append(all, fetches.Records()...)
	}
	slices.SortStableFunc(all, func(a, b *client.Record) int {
		return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

// What the Carillon in memory does for users' tests, three nodes do.
func TestConformance(t *testing.T) {
	var topics []string
	for _, c := range conformance.Cases() {
		topics = append(topics, c.DelayTopic(), c.Target(), c.Other())
	}
	testAPI(t, nil, topics, func(x *apiTest) {
		for _, c := range conformance.Cases() {
			c.Run(x.t, x)
		}
	})
}
