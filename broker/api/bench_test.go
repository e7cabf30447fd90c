package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/internal/nodetest"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/broker/query"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/raftfsm/node"
	"github.com/carillonmq/carillon/storage"
)

// A realNode has the desks of a group of one, whose log is on disk.
type realNode struct {
	fakeNode
	raft   *node.Node
	orders *order.Desk
	reads  *query.Desk
}

func (n *realNode) Orders() *order.Desk  { return n.orders }
func (n *realNode) Queries() *query.Desk { return n.reads }

// aloneLog tells that nobody else leads.
type aloneLog struct{ *node.Node }

func (l aloneLog) Barrier(ctx context.Context) error { return l.BarrierAt(ctx, nodetest.Now()) }

func (aloneLog) Leader() string { return "" }

func openNode(b *testing.B) *realNode {
	b.Helper()
	raft := nodetest.Open(b, b.Context())
	b.Cleanup(func() { raft.Close() })
	n := &realNode{raft: raft}
	n.status = broker.Status{Node: "n1", Leader: "n1"}
	n.propose(b, raftfsm.RaiseLevel{Level: storage.LevelFour})
	n.propose(b, raftfsm.Found{ClusterID: [16]byte{7}})
	n.propose(b, raftfsm.OpenIDs{UpTo: raft.Store().NextSeq() - 1})
	n.orders = order.New(order.Options{Config: config.Default(), Store: raft.Store(), Log: raft, Count: noCount{}, Begun: func() error { return nil }, Now: time.Now, Due: time.Now})
	n.reads = query.New(raft.Store(), aloneLog{raft})
	return n
}

func (n *realNode) propose(b *testing.B, c raftfsm.Command) {
	b.Helper()
	if _, err := n.raft.Propose(b.Context(), c).Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// fill schedules messages with ids and payloads of 100 bytes.
func (n *realNode) fill(b *testing.B, messages int) {
	b.Helper()
	due := time.Now().Add(time.Hour).UnixMilli()
	var operations []raftfsm.Operation
	for i := range messages {
		m := message.Message{ID: fmt.Sprint("m-", i), Origin: message.Origin{Topic: "orders.delay", Partition: -1}, Partition: -1, Value: bytes.Repeat([]byte("x"), 100)}
		operations = append(operations, raftfsm.Operation{Verb: raftfsm.Schedule, Entry: m.Entry(due+int64(i/10), "orders", storage.LevelFour)})
		if len(operations) == 2000 || i == messages-1 {
			n.propose(b, raftfsm.Operate{Time: time.Now().UnixMilli(), Operations: operations})
			operations = operations[:0:0]
		}
	}
}

// serve returns a client of the handler, over loopback.
func serve(b *testing.B, h http.Handler) (*http.Client, string) {
	b.Helper()
	server := httptest.NewServer(h)
	b.Cleanup(server.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, server.URL
}

// do sends a request and reads the answer.
func do(b *testing.B, c *http.Client, method, url string, body []byte) {
	request, err := http.NewRequestWithContext(b.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		b.Error(err)
		return
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(request)
	if err != nil {
		b.Error(err)
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"problem"`)) {
		b.Errorf("%v: %d %.300s", err, answer.StatusCode, text)
	}
}

// BenchmarkGet asks for a message by its id, behind a barrier: beside a handler that is written by hand for
// that alone.
func BenchmarkGet(b *testing.B) {
	n := openNode(b)
	n.fill(b, 10_000)
	byHand := http.NewServeMux()
	byHand.HandleFunc("GET /v1/messages/{topic}/{id}", func(w http.ResponseWriter, r *http.Request) {
		life, err := n.reads.Get(r.Context(), r.PathValue("topic"), r.PathValue("id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(life)
	})
	for _, with := range []struct {
		name    string
		handler http.Handler
	}{{"by hand", byHand}, {"api", NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())}} {
		b.Run(with.name, func(b *testing.B) {
			c, url := serve(b, with.handler)
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				begun := time.Now()
				do(b, c, "GET", fmt.Sprintf("%s/v1/messages/orders.delay/m-%d", url, i%10_000), nil)
				took = append(took, time.Since(begun))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkSchedule schedules by HTTP, from 64 clients: what is answered is on disk.
func BenchmarkSchedule(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("%d bytes, batch of %d", size, batch), func(b *testing.B) {
				n := openNode(b)
				c, url := serve(b, NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet()))
				one := client.ScheduleRequest{Topic: "orders.delay", DeliverAfter: "1h", Value: client.Text(strings.Repeat("x", size))}
				path, request := "/v1/messages", any(one)
				if batch > 1 {
					path, request = "/v1/batches", client.BatchRequest{Messages: slices.Repeat([]client.ScheduleRequest{one}, batch)}
				}
				body, err := json.Marshal(request)
				if err != nil {
					b.Fatal(err)
				}
				b.SetParallelism(32) // of two processors
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						do(b, c, "POST", url+path, body)
					}
				})
				b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// BenchmarkStream lists a million messages as lines of JSON, without payloads, and with them. Beside the rate it prints what
// a message costs of the processor, client included.
func BenchmarkStream(b *testing.B) {
	const messages = 1_000_000
	n := openNode(b)
	n.fill(b, messages)
	tokens := filepath.Join(b.TempDir(), "tokens.yaml")
	for _, test := range []struct {
		name    string
		payload bool
	}{{"without payloads", false}, {"with", true}} {
		b.Run(test.name, func(b *testing.B) {
			token, err := access.Create(tokens, access.Grant{Name: "reader", Role: access.Viewer, ReadPayload: test.payload}, time.Now())
			if err != nil {
				b.Fatal(err)
			}
			text, err := os.ReadFile(tokens)
			if err != nil {
				b.Fatal(err)
			}
			book, err := access.ReadBook(tokens, text)
			if err != nil {
				b.Fatal(err)
			}
			c, url := serve(b, NewHandler(n, prometheus.NewRegistry(), Callers{Tokens: func() access.Book { return book }}, quiet()))
			before := processorTime(b)
			for b.Loop() {
				request, err := http.NewRequestWithContext(b.Context(), "GET", url+"/v1/messages", nil)
				if err != nil {
					b.Fatal(err)
				}
				request.Header.Set("Accept", ndjsonType)
				request.Header.Set("Authorization", "Bearer "+token)
				answer, err := c.Do(request)
				if err != nil {
					b.Fatal(err)
				}
				count, last := 0, ""
				for lines := bufio.NewScanner(answer.Body); lines.Scan(); count++ {
					if last = lines.Text(); count == 0 && strings.Contains(last, "payload") != test.payload {
						b.Fatal(last)
					}
				}
				answer.Body.Close()
				if count != messages+1 || last != `{"end":true}` {
					b.Fatalf("%d lines, the last is %s", count, last)
				}
			}
			b.ReportMetric(float64(messages*b.N)/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(messages*b.N), "cpu-us")
		})
	}
}

// processorTime returns that of this process so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
