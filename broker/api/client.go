package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
)

// A Caller is who asks nodes, and how. The zero value shows no token, and speaks no TLS.
type Caller struct {
	Token string // "": none
	// Dial connects and shakes hands. nil: TCP without TLS.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Vouches: nodes ask each other for certificates, so this one says who has sent a request that it
	// passes on, in place of showing that one's token.
	Vouches bool
}

// A Client talks to the API of one node.
type Client struct {
	caller  Caller
	address string
	http    *http.Client
}

// NewClient returns a client, without a token, of the node whose API is at the address,
// host:port. It keeps no connection, so it need not be closed.
func NewClient(address string) *Client { return Caller{}.Client(address) }

// Client returns a client of the node whose API is at the address, as NewClient.
func (c Caller) Client(address string) *Client {
	transport := &http.Transport{DisableKeepAlives: true, DialTLSContext: c.Dial} // without a proxy: nodes are near
	return &Client{caller: c, address: address, http: &http.Client{
		Transport: transport, Timeout: answerTimeout + 5*time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // no node sends one: the token stays here
	}}
}

// Address returns where the node is asked, host:port.
func (c *Client) Address() string { return c.address }

// An Error is an answer of a node that is not a success.
type Error struct {
	Code    int    // of HTTP
	Problem string // such as CodeTokenMissing; "" of answers that have no code
	Message string
}

// Error returns the node's words.
func (e *Error) Error() string { return e.Message }

// Status returns what the node knows of itself and its cluster. Like every call
// here it blocks until the node has answered, and returns an *Error when that
// answer is no success.
func (c *Client) Status(ctx context.Context) (broker.Status, error) {
	var s broker.Status
	return s, c.get(ctx, "/v1/status", &s)
}

// Live returns nil when the process serves.
func (c *Client) Live(ctx context.Context) error { return c.get(ctx, "/livez", nil) }

// Ready returns nil when the node does its part; an *Error says why not.
func (c *Client) Ready(ctx context.Context) error { return c.get(ctx, "/readyz", nil) }

// Standing returns what the node tells one that asks whether it may be born.
func (c *Client) Standing(ctx context.Context) (broker.Standing, error) {
	var s broker.Standing
	return s, c.get(ctx, "/v1/standing", &s)
}

// ReachKafka returns what the node says of itself when Kafka answers it, at which it looks now; an
// *Error says why Kafka does not.
func (c *Client) ReachKafka(ctx context.Context) (broker.Reached, error) {
	var reached broker.Reached
	return reached, c.get(ctx, "/v1/kafka", &reached)
}

// Explain returns what the node knows of an id within its delay topic.
func (c *Client) Explain(ctx context.Context, topic, id string) (broker.Explanation, error) {
	var e broker.Explanation
	return e, c.get(ctx, "/v1/explain?"+url.Values{"topic": {topic}, "id": {id}}.Encode(), &e)
}

// List returns a page of what is pending, as GET /v1/messages takes its parameters. Only the leader
// can: others answer CodeNotLeader.
func (c *Client) List(ctx context.Context, parameters url.Values) (client.Page, error) {
	var page client.Page
	return page, c.get(ctx, messagesPath+"?"+parameters.Encode(), &page)
}

// Histogram counts what is pending, as GET /v1/histogram takes its parameters. Only the leader can.
func (c *Client) Histogram(ctx context.Context, parameters url.Values) (client.Histogram, error) {
	var counted client.Histogram
	return counted, c.get(ctx, histogramPath+"?"+parameters.Encode(), &counted)
}

// Message returns what is known of an id, as the leader answers GET /v1/messages/{topic}/{id}. cursor goes on
// with a search; "": none.
func (c *Client) Message(ctx context.Context, topic, id, cursor string) (json.RawMessage, error) {
	segment := func(text string) string { return strings.ReplaceAll(url.PathEscape(text), ".", "%2E") } // ".." is none
	path := messagesPath + "/" + segment(topic) + "/" + segment(id)
	if cursor != "" {
		path += "?cursor=" + url.QueryEscape(cursor)
	}
	var known json.RawMessage
	return known, c.get(ctx, path, &known)
}

// Metrics returns what GET /metrics answers, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	var text plainText
	return text, c.get(ctx, "/metrics", &text)
}

// plainText is an answer that is no JSON.
type plainText []byte

// Clock returns what the clock of the node says.
func (c *Client) Clock(ctx context.Context) (broker.ClockReading, error) {
	var r broker.ClockReading
	return r, c.get(ctx, "/v1/clock", &r)
}

// Replace asks the leader, through the node, to give the member that has lost its
// disk a new place in the group.
func (c *Client) Replace(ctx context.Context, member string) error {
	return c.post(ctx, replacePath, replaceRequest{Member: member}, nil)
}

// RaiseLevel asks the leader, through the node, to raise the feature level to the
// newest that all members understand, and returns the level in force then.
func (c *Client) RaiseLevel(ctx context.Context) (broker.LevelRaise, error) {
	return c.raiseLevel(ctx, raiseRequest{})
}

func (c *Client) raiseLevel(ctx context.Context, request raiseRequest) (level broker.LevelRaise, err error) {
	err = c.post(ctx, raisePath, request, &level)
	if answer := (*Error)(nil); errors.As(err, &answer) && answer.Code == http.StatusNotFound {
		answer.Message = fmt.Sprintf("the program of the node at %s is from before there were feature levels: upgrade it, then raise again", c.address)
	}
	return level, err
}

// url is where the path is at the node.
func (c *Client) url(path string) string {
	if c.caller.Dial != nil {
		return "https://" + c.address + path
	}
	return "http://" + c.address + path
}

// Pause asks the leader, through the node, to have the messages of a delay topic or target wait.
func (c *Client) Pause(ctx context.Context, p client.Pause) (change client.PauseChange, err error) {
	return c.changePause(ctx, "pause", p, pauseRequest{Who: p.Who, Why: p.Why})
}

// Resume asks the leader, through the node, to have them delivered again.
func (c *Client) Resume(ctx context.Context, p client.Pause) (change client.PauseChange, err error) {
	return c.changePause(ctx, "resume", p, pauseRequest{})
}

func (c *Client) changePause(ctx context.Context, verb string, p client.Pause, request pauseRequest) (change client.PauseChange, err error) {
	return change, c.post(ctx, pausePath(p.Kind, url.PathEscape(p.Name), verb), request, &change)
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(path), nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.address, err)
	}
	return c.do(request, into)
}

func (c *Client) post(ctx context.Context, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.address, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(path), bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.address, err)
	}
	request.Header.Set("Content-Type", "application/json")
	return c.do(request, into)
}

// mostAnswered bounds the answer that is read, in bytes, as package client does: a record has 16 MiB at most, and
// as base64 a third more.
const mostAnswered = 32 << 20

// ErrWantsTLS is returned when a node that was asked without TLS answers that it speaks nothing else.
var ErrWantsTLS = errors.New("speaks TLS")

// ErrTooLong is returned when a node answers with more than is read.
var ErrTooLong = fmt.Errorf("the answer is longer than %d bytes", mostAnswered)

// do decodes a success into the given value, unless that is nil.
func (c *Client) do(request *http.Request, into any) error {
	if c.caller.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.caller.Token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.address, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswered+1))
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.address, err)
	}
	if len(body) > mostAnswered {
		return fmt.Errorf("ask %s: %w: read %s by another program, such as curl", c.address, ErrTooLong, request.URL)
	}
	if answer.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(body, &f) != nil || f.Error == "" {
			if bytes.Contains(body, []byte("HTTP request to an HTTPS server")) { // words of net/http
				return fmt.Errorf("the node at %s %w: ask https://%[1]s", c.address, ErrWantsTLS)
			}
			f.Error = fmt.Sprintf("ask %s: answered %s, is this the api address of a node?", c.address, answer.Status)
		}
		return &Error{Code: answer.StatusCode, Problem: f.Code, Message: f.Error}
	}
	switch into := into.(type) {
	case nil:
		return nil
	case *plainText:
		*into = body
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("ask %s, is this the api address of a node?: %w", c.address, err)
	}
	return nil
}
