package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Admin asks a cluster over its HTTP API: it schedules, cancels and changes messages, tells what is
// pending, and does what operators do. It knows several nodes, any of which can answer, and goes on to the
// next one when one does not.
//
// Every method blocks until there is an answer, for [AdminOptions.Timeout] at most, or until its ctx ends.
// What is refused is a *[Problem] that wraps one of the sentinels of this package. A read is sent again
// until it is answered; so is a write of which the node says that nothing was done, and one of which a
// second time has no effect of its own: with an idempotency key, or on the condition that a message of a
// certain seq waits. Any other write that was sent and not answered is [ErrInDoubt]: it may have been carried out.
//
// All methods are safe for concurrent use. Connections are kept; Close closes them.
type Admin struct {
	nodes *endpoints
	stale bool
}

// AdminOptions say how nodes are asked. The zero value shows no token and waits 15 seconds.
type AdminOptions struct {
	// Token returns what is shown to the nodes; it is called for each request, from many goroutines.
	// nil: none. See [StaticToken] and [TokenFile].
	Token func(ctx context.Context) (string, error)
	// TLS is for https:// endpoints, and makes those without a scheme such. nil: the system's roots.
	TLS *tls.Config
	// Timeout bounds a call with all its tries, and each silence of a sequence. 0: 15 seconds.
	Timeout time.Duration
	// Transport carries the requests in place of one made here, whose TLS is not used then. An error that it
	// returns leaves a write in doubt, unless it wraps a *net.OpError of dialing. nil: one that keeps
	// connections.
	Transport http.RoundTripper
}

// StaticToken returns a source of one token.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// TokenFile returns a source that reads the token from the file each time, so that it may be exchanged.
// Blanks and line breaks around it do not count.
func TokenFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(text)), nil
	}
}

// NewAdmin returns an Admin that asks the nodes at these API addresses: host:port, or a URL with a path
// under which the API is. It asks none of them yet. The error is for addresses that are none, and wraps
// [ErrBadRequest].
func NewAdmin(addresses []string, options AdminOptions) (*Admin, error) {
	nodes, err := newEndpoints(addresses, options)
	if err != nil {
		return nil, fmt.Errorf("new admin: %w", err)
	}
	return &Admin{nodes: nodes}, nil
}

// Close closes the connections that no call uses. Calls after it are [ErrClosed].
func (a *Admin) Close() {
	a.nodes.closed.Store(true)
	a.nodes.http.CloseIdleConnections()
}

// Stale returns an Admin on the same connections whose reads are answered by whichever node is asked, from
// what that has applied of the log: they may miss what was acknowledged a moment before, and need no
// leader. Writes are as ever.
func (a *Admin) Stale() *Admin { return &Admin{nodes: a.nodes, stale: true} }

// A Name says which message is meant.
type Name struct {
	Topic string // the delay topic
	ID    string // chosen by its producer, or made by the cluster; else the topic/partition/offset of its record
	Seq   uint64 // only while it is this very one that waits, else ErrConflict; 0: whichever waits
}

func (n Name) String() string { return strconv.Quote(n.ID) + " of " + n.Topic }

func (n Name) path(more string) string {
	return messagesPath + "/" + segment(n.Topic) + "/" + segment(n.ID) + more
}

// isOf returns an error unless what a node answers is of the message that was asked for.
func (n Name) isOf(what, topic, id string) error {
	if topic == n.Topic && id == n.ID {
		return nil
	}
	return fmt.Errorf("%s: the answer is of %s: something on the way to the node, such as a proxy that decodes paths, has changed which message is meant", what, Name{Topic: topic, ID: id})
}

func (n Name) header() map[string]string {
	if n.Seq == 0 {
		return nil
	}
	return map[string]string{"If-Match": `"` + strconv.FormatUint(n.Seq, 10) + `"`}
}

const messagesPath = "/v1/messages"

// segment returns text as one segment of a path; ".." would be none.
func segment(text string) string { return strings.ReplaceAll(url.PathEscape(text), ".", "%2E") }

// Schedule has a message delivered later. Answer.ID is the one that the cluster made, if the request has
// none.
func (a *Admin) Schedule(ctx context.Context, r ScheduleRequest) (answer Answer, err error) {
	keyed := r.IdempotencyKey != ""
	// That none waits may hold twice: the message of the first time may be delivered before the second.
	ofOne := r.ID != "" && r.If != "" && r.If != ConditionPresent && r.If != ConditionAbsent
	return answer, a.nodes.do(ctx, call{
		what: "schedule " + Name{Topic: r.Topic, ID: r.ID}.String(), method: http.MethodPost, path: messagesPath, body: r,
		again: keyed || ofOne, settled: keyed, into: &answer,
	})
}

// MostBatched is how many messages ScheduleBatch takes.
const MostBatched = 1000

// ScheduleBatch is [Admin.Schedule] for many messages, [MostBatched] at most, each for itself: items[i] is
// what came of requests[i]. The error is for the batch as a whole. Only if every message has an idempotency key
// it is sent again, and so are those messages of it that are in doubt, or that no node could take for the moment.
func (a *Admin) ScheduleBatch(ctx context.Context, requests []ScheduleRequest) (items []BatchItem, err error) {
	keyed := true
	for _, r := range requests {
		keyed = keyed && r.IdempotencyKey != ""
	}
	ctx, cancel := context.WithTimeout(ctx, a.nodes.timeout)
	defer cancel()
	latest, doubt, err := a.sendBatch(ctx, requests, keyed) // as nodes told it, each item
	if err != nil || !keyed {
		return latest, err
	}
	items = make([]BatchItem, len(latest)) // what that means
	for i, item := range latest {
		items[i] = item.after(doubt)
	}
	for wait := leastPause; ; wait = min(2*wait, mostPause) {
		left := openItems(requests, latest)
		if len(left) == 0 || !pass(ctx, wait) {
			return items, nil
		}
		again := make([]ScheduleRequest, len(left))
		for k, i := range left {
			again[k] = requests[i]
		}
		answers, doubt, err := a.sendBatch(ctx, again, keyed)
		if errors.Is(err, ErrInDoubt) {
			answers = slices.Repeat([]BatchItem{{Problem: inDoubt(err)}}, len(left))
		} else if err != nil {
			return items, nil // nothing was done this time
		}
		for k, i := range left {
			before := doubt
			if p := items[i].Problem; errors.Is(p, ErrInDoubt) {
				before = p
			}
			latest[i], items[i] = answers[k], answers[k].after(before)
		}
	}
}

// openItems returns which messages are to be sent again. One that a later message of the batch has taken the place of
// is not: it would take the place of that one.
func openItems(requests []ScheduleRequest, items []BatchItem) (open []int) {
	taken := map[Name]bool{}
	for i := range slices.Backward(items) {
		n := Name{Topic: requests[i].Topic, ID: requests[i].ID}
		switch {
		case items[i].Answer != nil:
			taken[n] = n.ID != ""
		case items[i].isOpen() && !taken[n]:
			open = append(open, i)
		}
	}
	slices.Reverse(open)
	return open
}

// sendBatch returns what a node answers, and the doubt about what was sent before that answer.
func (a *Admin) sendBatch(ctx context.Context, requests []ScheduleRequest, keyed bool) (items []BatchItem, doubt, err error) {
	var answer BatchAnswer
	doubt, err = a.nodes.ask(ctx, call{
		what: fmt.Sprintf("schedule %d messages", len(requests)), method: http.MethodPost, path: "/v1/batches", body: BatchRequest{Messages: requests},
		again: keyed, settled: keyed, into: &answer,
	})
	told := len(answer.Answers)
	for _, item := range answer.Answers {
		if item.Problem == nil && (item.Answer == nil || item.Answer.Seq == 0) {
			told--
		}
	}
	if err == nil && told != len(requests) {
		err = fmt.Errorf("schedule %d messages: %w: there are %d answers", len(requests), ErrInDoubt, told)
	}
	return answer.Answers, doubt, err
}

// isOpen reports whether the message with its key is to be sent again.
func (i BatchItem) isOpen() bool {
	return i.Problem != nil && (errors.Is(i.Problem, ErrInDoubt) || errors.Is(i.Problem, ErrUnavailable))
}

// after is what the item means when the message was sent before, and may have been scheduled then; nil: it was not.
func (i BatchItem) after(doubt error) BatchItem {
	p := i.Problem
	if doubt == nil || p == nil || errors.Is(p, ErrInDoubt) || ofTheLog(p) {
		return i
	}
	if !i.isOpen() {
		doubt = afterDoubt(p, doubt)
	}
	return BatchItem{Problem: inDoubt(doubt)}
}

// inDoubt is the doubt as a node would tell it.
func inDoubt(doubt error) *Problem {
	status := CodeInDoubt.Status()
	return &Problem{Title: http.StatusText(status), Status: status, Code: CodeInDoubt, Detail: doubt.Error()}
}

// Cancel has the message never delivered. When it is too late for that, the error is [ErrTooLate] with what
// is known of the message. What was cancelled before is no error. The reason, which may be "", is for the
// log of the cluster.
func (a *Admin) Cancel(ctx context.Context, n Name, reason string) (Answer, error) {
	return a.order(ctx, n, call{
		what: "cancel " + n.String(), method: http.MethodDelete, path: n.path(""), query: because(reason), header: n.header(),
		again: n.Seq != 0,
	})
}

// Change has the message delivered at another time, elsewhere, or as something else. What the request
// leaves out stays. It gets a new seq, and its place in the order is that of a new message.
func (a *Admin) Change(ctx context.Context, n Name, r ChangeRequest) (Answer, error) {
	return a.order(ctx, n, call{
		what: "change " + n.String(), method: http.MethodPatch, path: n.path(""), header: n.header(), body: r,
		again: n.Seq != 0,
	})
}

// Now has the message delivered at once.
func (a *Admin) Now(ctx context.Context, n Name, reason string) (Answer, error) {
	return a.order(ctx, n, call{
		what: "deliver now " + n.String(), method: http.MethodPost, path: n.path("/now"), query: because(reason), header: n.header(),
		again: n.Seq != 0,
	})
}

// order sends what is to be done to the message of that name.
func (a *Admin) order(ctx context.Context, n Name, c call) (answer Answer, err error) {
	c.into = &answer
	if err = a.nodes.do(ctx, c); err == nil {
		err = n.isOf(c.what, answer.Topic, answer.ID)
	}
	return answer, err
}

func because(reason string) url.Values {
	if reason == "" {
		return nil
	}
	return url.Values{"reason": {reason}}
}

// read asks for what has no effect.
func (a *Admin) read(ctx context.Context, what, path string, query url.Values, into any) error {
	return a.nodes.do(ctx, call{what: what, method: http.MethodGet, path: path, query: a.asked(query), again: true, into: into})
}

// asked adds to the parameters of a read who may answer it.
func (a *Admin) asked(query url.Values) url.Values {
	if a.stale {
		if query == nil {
			query = url.Values{}
		}
		query.Set("stale", "true")
	}
	return query
}

// Explain returns all that one node knows of an id, also in sentences.
func (a *Admin) Explain(ctx context.Context, topic, id string) (e Explanation, err error) {
	n := Name{Topic: topic, ID: id}
	return e, a.read(ctx, "explain "+n.String(), "/v1/explain", url.Values{"topic": {topic}, "id": {id}}, &e)
}

// values returns the filter as the parameters of a request.
func (f Filter) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{"topic": f.Topic, "prefix": f.Prefix, "target": f.Target, "code": f.Code} {
		if text != "" {
			v.Set(name, text)
		}
	}
	for name, ms := range map[string]int64{"from": f.From, "to": f.To} {
		if ms != 0 {
			v.Set(name, strconv.FormatInt(ms, 10))
		}
	}
	if len(f.States) > 0 {
		v["state"] = f.States
	}
	return v
}

// Count returns how many messages the filter means. It costs the same whatever is pending, and says whether
// it is exact.
func (a *Admin) Count(ctx context.Context, f Filter) (c Count, err error) {
	return c, a.read(ctx, "count", "/v1/count", f.values(), &c)
}

// Histogram returns how many messages the filter means, by when they are due: bounds, in epoch milliseconds
// and rising, 1,000 at most, part the time; byTarget tells each target apart.
func (a *Admin) Histogram(ctx context.Context, f Filter, bounds []int64, byTarget bool) (h Histogram, err error) {
	query := f.values()
	if len(bounds) > 0 {
		texts := make([]string, len(bounds))
		for i, ms := range bounds {
			texts[i] = strconv.FormatInt(ms, 10)
		}
		query.Set("bounds", strings.Join(texts, ","))
	}
	if byTarget {
		query.Set("by", "target")
	}
	return h, a.read(ctx, "histogram", "/v1/histogram", query, &h)
}

// Status returns what one node knows of itself and of its cluster.
func (a *Admin) Status(ctx context.Context) (s Status, err error) {
	return s, a.read(ctx, "status", "/v1/status", nil, &s)
}

// Topics returns the delay topics that messages are pending of or that are paused.
func (a *Admin) Topics(ctx context.Context) (p Places, err error) {
	return p, a.read(ctx, "list topics", "/v1/topics", nil, &p)
}

// Targets returns the targets that messages are pending for or that are paused.
func (a *Admin) Targets(ctx context.Context) (p Places, err error) {
	return p, a.read(ctx, "list targets", "/v1/targets", nil, &p)
}

// Pauses returns what is held back, as far as one node has applied the log.
func (a *Admin) Pauses(ctx context.Context) ([]Pause, error) {
	s, err := a.Status(ctx)
	return s.Paused, err
}

// Pause has the messages of a delay topic, or those for a target, wait until Resume. What is paused already
// stays as it is. Of p, Since does not count, and Who only for those who show no token.
func (a *Admin) Pause(ctx context.Context, p Pause) (change PauseChange, err error) {
	return change, a.hold(ctx, "pause", p, &change)
}

// Resume has them delivered again: at once what was due meanwhile. Of p, Kind and Name count.
func (a *Admin) Resume(ctx context.Context, p Pause) (change PauseChange, err error) {
	return change, a.hold(ctx, "resume", Pause{Kind: p.Kind, Name: p.Name}, &change)
}

func (a *Admin) hold(ctx context.Context, verb string, p Pause, change *PauseChange) error {
	what := fmt.Sprintf("%s %s %q", verb, p.Kind, p.Name)
	if p.Kind != PauseTopic && p.Kind != PauseTarget {
		return fmt.Errorf("%s: %w: kind %q: it is %s or %s", what, ErrBadRequest, p.Kind, PauseTopic, PauseTarget)
	}
	body := struct {
		Who string `json:"who,omitempty"`
		Why string `json:"why,omitempty"`
	}{p.Who, p.Why}
	return a.nodes.do(ctx, call{what: what, method: http.MethodPost, path: "/v1/" + p.Kind + "s/" + segment(p.Name) + "/" + verb, body: body, into: change})
}

const operationsPath = "/v1/operations"

// StartOperation has something done to all that a filter means. It returns as soon as that has begun; of a
// dry run the answer has all there is. It is sent again until it is answered, and starts one operation: each
// call has an idempotency key of its own.
func (a *Admin) StartOperation(ctx context.Context, r OperationRequest) (o Operation, err error) {
	return o, a.nodes.do(ctx, call{
		what: "start to " + r.Verb, method: http.MethodPost, path: operationsPath, header: map[string]string{"Idempotency-Key": rand.Text()}, body: r,
		again: true, settled: true, into: &o,
	})
}

// Operation returns how far an operation is.
func (a *Admin) Operation(ctx context.Context, id string) (o Operation, err error) {
	return o, a.read(ctx, "get operation "+id, operationsPath+"/"+segment(id), nil, &o)
}

// Operations returns those that run, and those that ended within a day.
func (a *Admin) Operations(ctx context.Context) ([]Operation, error) {
	var all Operations
	err := a.read(ctx, "list operations", operationsPath, nil, &all)
	return all.Operations, err
}

// StopOperation ends an operation. What was done stays done. The reason, which may be "", is for whoever finds
// it stopped.
func (a *Admin) StopOperation(ctx context.Context, id, reason string) (o Operation, err error) {
	return o, a.nodes.do(ctx, call{
		what: "stop operation " + id, method: http.MethodPost, path: operationsPath + "/" + segment(id) + "/stop", query: because(reason),
		again: true, settled: true, into: &o,
	})
}

// A Position is where a record lies in Kafka.
type Position struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (p Position) String() string { return fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset) }

const deadLettersPath = "/v1/dead-letters"

func (p Position) path(more string) string {
	return fmt.Sprintf("%s/%s/%d/%d%s", deadLettersPath, segment(p.Topic), p.Partition, p.Offset, more)
}

// DeadLetter returns one dead letter, with its payload if the token may read that.
func (a *Admin) DeadLetter(ctx context.Context, p Position) (d DeadLetter, err error) {
	return d, a.read(ctx, "get dead letter "+p.String(), p.path(""), nil, &d)
}

// Replay schedules a dead letter anew. One that was replayed before is [ErrReplayed], unless the request
// says to do it again.
func (a *Admin) Replay(ctx context.Context, p Position, r ReplayRequest) (answer Answer, err error) {
	return answer, a.nodes.do(ctx, call{
		what: "replay dead letter " + p.String(), method: http.MethodPost, path: p.path("/replay"), body: r,
		again: !r.Again, into: &answer,
	})
}
