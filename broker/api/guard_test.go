package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
)

// A door is an API with tokens.
type door struct {
	t    *testing.T
	node *fakeNode
	path string
	log  bytes.Buffer
	anon bool

	routes http.Handler // nil: not made yet
}

func newDoor(t *testing.T) *door {
	return &door{
		t: t, path: filepath.Join(t.TempDir(), "tokens.yaml"),
		node: &fakeNode{status: broker.Status{Node: "n1", State: "leader", Leader: "n1"}},
	}
}

func (d *door) create(g access.Grant) string {
	d.t.Helper()
	token, err := access.Create(d.path, g, time.Unix(1, 0))
	if err != nil {
		d.t.Fatal(err)
	}
	return token
}

func (d *door) tokens() access.Book {
	text, err := os.ReadFile(d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	b, err := access.ReadBook(d.path, text)
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

func (d *door) handler() http.Handler {
	if d.routes == nil {
		d.routes = NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: d.tokens, Anonymous: d.anon}, slog.New(slog.NewTextHandler(&d.log, nil)))
	}
	return d.routes
}

// ask sends what a route takes, with the Authorization header.
func (d *door) ask(pattern, authorization string) *httptest.ResponseRecorder {
	method, path, _ := strings.Cut(pattern, " ")
	path = strings.NewReplacer("{topic}", "orders.delay", "{target}", "orders", "{id}", "order-7", "{operation}", "1", "{partition}", "0", "{offset}", "7").Replace(path)
	request := httptest.NewRequest(method, path+queries[pattern], strings.NewReader(bodies[pattern]))
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	answer := httptest.NewRecorder()
	d.handler().ServeHTTP(answer, request)
	return answer
}

// bodies are those of the routes that take one.
var bodies = map[string]string{
	"POST " + replacePath:             `{"member":"n3"}`,
	"POST /v1/messages":               `{"topic":"orders.delay","deliver_after":"1h"}`,
	"POST /v1/batches":                `{"messages":[{"topic":"orders.delay","deliver_after":"1h"}]}`,
	"PUT /v1/messages/{topic}/{id}":   `{"deliver_after":"1h"}`,
	"PATCH /v1/messages/{topic}/{id}": `{"deliver_after":"2h"}`,

	"POST /v1/operations": `{"verb":"cancel","filter":{"topic":"orders.delay","target":"orders"},"reason":"r"}`,

	"POST /v1/dead-letters/{topic}/{partition}/{offset}/replay": `{}`,
}

// queries are those of the routes that want one.
var queries = map[string]string{"GET /v1/explain": "?topic=orders.delay&id=i", "GET /v1/messages": "?topic=orders.delay", "GET /v1/count": "?topic=orders.delay", "GET /v1/dead-letters": "?topic=orders.delay&target=orders", "GET /v1/histogram": "?topic=orders.delay&bounds=1800000000000"}

// A way is who may use a route: the roles, nobody in particular if there are none, of the tokens that are for
// what is asked: orders.delay, the target orders, or both.
type way struct {
	roles []access.Role
	scope string // what a token must be for: anything, topic, target, both or all; a way of none says nothing
}

var (
	anybody     = way{}
	seeing      = []access.Role{access.Viewer, access.Operator, access.Admin}
	operating   = []access.Role{access.Operator, access.Admin}
	administers = []access.Role{access.Admin}
)

// needs says of every route who may use it.
var needs = map[string]way{
	"GET /livez":       anybody,
	"GET /readyz":      anybody,
	"GET /v1/standing": anybody,
	"GET /v1/kafka":    anybody,
	"GET /v1/clock":    anybody,
	"GET " + specPath:  anybody,

	"GET /metrics":                  {seeing, "anything"},
	"GET /v1/status":                {seeing, "anything"},
	"GET /v1/topics":                {seeing, "anything"}, // its answer has what the token is for
	"GET /v1/targets":               {seeing, "anything"},
	"GET /v1/explain":               {seeing, "topic"},
	"GET /v1/histogram":             {seeing, "topic"},
	"GET /v1/count":                 {seeing, "topic"},
	"GET /v1/messages":              {seeing, "topic"},
	"GET /v1/messages/{topic}/{id}": {seeing, "topic"},

	"POST /v1/messages":                  {operating, "both"},
	"POST /v1/batches":                   {operating, "anything"}, // its answer says of each message whether it may be
	"PUT /v1/messages/{topic}/{id}":      {operating, "topic"},    // what it replaces may be for another target
	"PATCH /v1/messages/{topic}/{id}":    {operating, "topic"},
	"DELETE /v1/messages/{topic}/{id}":   {operating, "topic"},
	"POST /v1/messages/{topic}/{id}/now": {operating, "topic"},

	"GET /v1/dead-letters":                                      {seeing, "both"},
	"GET /v1/dead-letters/{topic}/{partition}/{offset}":         {seeing, "both"},    // of the message in it
	"POST /v1/dead-letters/{topic}/{partition}/{offset}/replay": {operating, "both"}, // likewise

	"POST /v1/operations":                  {operating, "both"},  // of its filter
	"GET /v1/operations":                   {seeing, "anything"}, // its answer has what the token is for
	"GET /v1/operations/{operation}":       {seeing, "both"},
	"POST /v1/operations/{operation}/stop": {operating, "both"},

	"POST /v1/topics/{topic}/pause":    {operating, "topic"},
	"POST /v1/topics/{topic}/resume":   {operating, "topic"},
	"POST /v1/targets/{target}/pause":  {operating, "target"},
	"POST /v1/targets/{target}/resume": {operating, "target"},

	"POST " + replacePath: {administers, "all"},
	"POST " + raisePath:   {administers, "all"},
}

// lets reports whether a token of the role may use the route, for those topics and targets; none: all.
func (w way) lets(role access.Role, topics, targets []string) bool {
	covers := func(patterns []string, name string) bool { return patterns == nil || slices.Contains(patterns, name) }
	topic, target := covers(topics, "orders.*"), covers(targets, "orders")
	allTopics, allTargets := topics == nil, targets == nil
	reaches := map[string]bool{
		"anything": true, "topic": topic && allTargets, "target": target && allTopics, "both": topic && target, "all": allTopics && allTargets,
	}
	return w.roles == nil || slices.Contains(w.roles, role) && reaches[w.scope]
}

// Every route x role x scope, and who shows nothing. A route that is not in the table above fails.
func TestGuard_letsThroughWhoMay(t *testing.T) {
	d := newDoor(t)
	routes := (&handler{node: d.node}).routes(prometheus.NewRegistry())
	if len(routes) != len(needs) {
		t.Errorf("%d routes, %d needs: say of each who may use it", len(routes), len(needs))
	}
	d.create(access.Grant{Name: "somebody", Role: access.Viewer})
	for _, r := range routes {
		way, known := needs[r.pattern]
		if !known {
			t.Errorf("%s: who may use it?", r.pattern)
		}
		want := http.StatusUnauthorized
		if way.roles == nil {
			want = http.StatusOK
		}
		if got := d.ask(r.pattern, ""); got.Code != want {
			t.Errorf("%s without a token: %d %s", r.pattern, got.Code, got.Body)
		}
	}
	for _, role := range seeing {
		for _, topics := range [][]string{nil, {"orders.*"}, {"bills.*"}} {
			for _, targets := range [][]string{nil, {"orders"}, {"parcels"}} {
				token := d.create(access.Grant{Name: "anna", Role: role, ReadPayload: true, Topics: topics, Targets: targets})
				for _, r := range routes {
					want := http.StatusForbidden
					if needs[r.pattern].lets(role, topics, targets) {
						want = http.StatusOK
					}
					done := len(d.node.orders.asked) + len(d.node.steps.asked)
					got := d.ask(r.pattern, "Bearer "+token)
					if got.Code != want && (want != http.StatusOK || got.Code != http.StatusAccepted) {
						t.Errorf("%s as %s of %q and %q: %d %s", r.pattern, role, topics, targets, got.Code, got.Body)
					}
					if want == http.StatusForbidden && len(d.node.orders.asked)+len(d.node.steps.asked) > done {
						t.Errorf("%s as %s of %q and %q was done", r.pattern, role, topics, targets)
					}
				}
			}
		}
	}
}

func TestGuard_explainsIDsOfTheTopicsThatATokenIsFor(t *testing.T) {
	d := newDoor(t)
	token := d.create(access.Grant{Name: "anna", Role: access.Viewer, Topics: []string{"orders.*"}})
	for query, want := range map[string]int{
		"?topic=orders.delay&id=i":                   http.StatusOK,
		"?topic=bills.delay&id=i":                    http.StatusForbidden,
		"?topic=orders.delay&topic=bills.delay&id=i": http.StatusBadRequest, // which of the two?
		"?topic=orders.delay&target=orders&id=i":     http.StatusBadRequest, // it tells of all targets
		"?id=i":                                      http.StatusForbidden,
	} {
		request := httptest.NewRequest("GET", "/v1/explain"+query, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		d.handler().ServeHTTP(answer, request)
		if answer.Code != want || strings.Contains(answer.Body.String(), "\"topic\":\"bills.delay\"") {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
}

// What is done to a target is done to all topics: a query narrows nothing.
func TestGuard_takesTheTopicOfAQueryOnlyWhereTheAnswerIsOfThatTopic(t *testing.T) {
	d := newDoor(t)
	token := d.create(access.Grant{Name: "anna", Role: access.Operator, Topics: []string{"orders.*"}})
	path := pausePath(client.PauseTarget, "orders", "pause")
	request := httptest.NewRequest("POST", path+"?topic=orders.delay", strings.NewReader("{}"))
	request.Header.Set("Authorization", "Bearer "+token)
	answer := httptest.NewRecorder()
	d.handler().ServeHTTP(answer, request)
	if answer.Code != http.StatusForbidden {
		t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
	}
}

func TestGuard_refusesWithAStableCode(t *testing.T) {
	d := newDoor(t)
	viewer, gone := d.create(access.Grant{Name: "anna", Role: access.Viewer}), d.create(access.Grant{Name: "bert", Role: access.Admin})
	narrow := d.create(access.Grant{Name: "cora", Role: access.Admin, Topics: []string{"orders.*"}})
	if _, err := access.Revoke(d.path, strings.Split(gone, "_")[1]); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what, shown string
		status      int
		code, says  string
	}{
		{"nothing", "", http.StatusUnauthorized, CodeTokenMissing, "this needs a token; `carillon token create` makes one"},
		{"a revoked token", "Bearer " + gone, http.StatusUnauthorized, CodeTokenUnknown, "not known to this node, or not any more"},
		{"half a token", "Bearer " + viewer[:30], http.StatusUnauthorized, CodeTokenMalformed, "it has 30 characters"},
		{"a password", "Basic YW5uYTpodW50ZXIy", http.StatusUnauthorized, CodeTokenMalformed, "this is no token of the form"},
		{"a token without scheme", viewer, http.StatusUnauthorized, CodeTokenMalformed, "send it as Authorization: Bearer TOKEN"},
		{"a viewer's", "bearer  " + viewer, http.StatusForbidden, CodeForbidden, "this needs the permission administer, which the token " + strings.Split(viewer, "_")[1] + " of anna with the role viewer does not have"},
		{"one of some topics", "Bearer " + narrow, http.StatusForbidden, CodeForbidden, `it is for delay topics ["orders.*"] and targets [] (none named: all)`},
	} {
		answer := d.ask("POST "+raisePath, test.shown)
		var p problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		want := problem{Problem: client.Problem{Title: http.StatusText(test.status), Status: test.status, Code: client.Code(test.code), Detail: p.Detail}, Error: p.Detail}
		if diff := cmp.Diff(want, p); diff != "" || answer.Code != test.status || !strings.Contains(p.Detail, test.says) {
			t.Errorf("%s: %d %q, -want +got:\n%s", test.what, answer.Code, p.Detail, diff)
		}
		if kind := answer.Header().Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%s: content type %s", test.what, kind)
		}
		if challenge := answer.Header().Get("WWW-Authenticate"); (test.status == http.StatusUnauthorized) != (challenge == `Bearer realm="carillon"`) {
			t.Errorf("%s: challenge %q", test.what, challenge)
		}
	}
	if d.node.raised != 0 {
		t.Errorf("raised %d times", d.node.raised)
	}
	for _, token := range []string{viewer, gone, narrow} {
		if secret := strings.Split(token, "_")[2]; strings.Contains(d.log.String(), secret[:20]) {
			t.Errorf("a secret is in the log:\n%s", &d.log)
		}
	}
}

// An issuer's token is told by its form, and each thing that is wrong with it has a code.
func TestGuard_takesTokensOfAnIssuerBesideThoseOfTheFile(t *testing.T) {
	d := newDoor(t)
	admin := d.create(access.Grant{Name: "anna", Role: access.Admin})
	issued := map[string]error{"a.b.bert": nil}
	for _, err := range []error{
		access.ErrUnreadable, access.ErrAlgorithm, access.ErrSignature, access.ErrKeyUnknown, access.ErrExpired, access.ErrNotYet,
		access.ErrIssuer, access.ErrAudience, access.ErrNameless, access.ErrNoRole, access.ErrIssuerAway,
	} {
		issued["a.b."+err.Error()] = fmt.Errorf("%w: in detail", err)
	}
	handler := func(tokens func() access.Book) http.Handler {
		return NewHandler(d.node, prometheus.NewRegistry(), Callers{Tokens: tokens, Issued: func(token string) (access.Grant, error) {
			return access.Grant{ID: "oidc", Name: "bert", Role: access.Admin}, issued[token]
		}}, slog.New(slog.NewTextHandler(&d.log, nil)))
	}
	for _, test := range []struct {
		token  string
		status int
		code   string
	}{
		{admin, http.StatusOK, ""},
		{"a.b.bert", http.StatusOK, ""},
		{"", http.StatusUnauthorized, CodeTokenMissing},
		{"a.b", http.StatusUnauthorized, CodeTokenMalformed},
		{"a.b." + access.ErrUnreadable.Error(), http.StatusUnauthorized, CodeTokenMalformed},
		{"a.b." + access.ErrAlgorithm.Error(), http.StatusUnauthorized, CodeTokenAlgorithm},
		{"a.b." + access.ErrSignature.Error(), http.StatusUnauthorized, CodeTokenSignature},
		{"a.b." + access.ErrKeyUnknown.Error(), http.StatusUnauthorized, CodeTokenKeyUnknown},
		{"a.b." + access.ErrExpired.Error(), http.StatusUnauthorized, CodeTokenExpired},
		{"a.b." + access.ErrNotYet.Error(), http.StatusUnauthorized, CodeTokenNotYet},
		{"a.b." + access.ErrIssuer.Error(), http.StatusUnauthorized, CodeTokenIssuer},
		{"a.b." + access.ErrAudience.Error(), http.StatusUnauthorized, CodeTokenAudience},
		{"a.b." + access.ErrNameless.Error(), http.StatusUnauthorized, CodeTokenNameless},
		{"a.b." + access.ErrNoRole.Error(), http.StatusForbidden, CodeForbidden},
		{"a.b." + access.ErrIssuerAway.Error(), http.StatusServiceUnavailable, CodeUnavailable},
	} {
		for what, tokens := range map[string]func() access.Book{"with a file": d.tokens, "without": nil} {
			if test.token == admin && tokens == nil {
				continue
			}
			request := httptest.NewRequest("POST", raisePath, nil)
			if test.token != "" {
				request.Header.Set("Authorization", "Bearer "+test.token)
			}
			answer := httptest.NewRecorder()
			handler(tokens).ServeHTTP(answer, request)
			var p problem
			if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if answer.Code != test.status || string(p.Code) != test.code || (answer.Header().Get("Retry-After") != "") != (test.status == http.StatusServiceUnavailable) {
				t.Errorf("%q, %s: %d %s", test.token, what, answer.Code, answer.Body)
			}
			if issued[test.token] != nil && (!strings.HasPrefix(p.Detail, issued[test.token].Error()) || p.Detail == issued[test.token].Error()) {
				t.Errorf("%q: the detail is %q, with no remedy", test.token, p.Detail)
			}
		}
	}
	if !strings.Contains(d.log.String(), `msg="write requested" component=api who=bert token=oidc`) {
		t.Errorf("the log does not say who wrote:\n%s", &d.log)
	}
	for token := range issued {
		if strings.Contains(d.log.String(), token) {
			t.Errorf("a token is in the log:\n%s", &d.log)
		}
	}
}

// The words that a client of before there were problems reads are there, too.
func TestClient_saysWhyItIsRefused(t *testing.T) {
	d := newDoor(t)
	viewer := d.create(access.Grant{Name: "anna", Role: access.Viewer})
	server := httptest.NewServer(d.handler())
	defer server.Close()
	address := server.Listener.Addr().String()
	if _, err := (Caller{Token: viewer}).Client(address).Status(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := NewClient(address).Status(t.Context())
	if answer, ok := errors.AsType[*Error](err); !ok || answer.Code != http.StatusUnauthorized || answer.Problem != CodeTokenMissing || !strings.HasPrefix(answer.Message, "this needs a token") {
		t.Errorf("got %#v", err)
	}
}

func TestGuard_letsAnybodyInWhereTheConfigurationSaysSo(t *testing.T) {
	d := newDoor(t)
	d.anon = true
	viewer := d.create(access.Grant{Name: "anna", Role: access.Viewer})
	for shown, want := range map[string]int{
		"": http.StatusOK, "Bearer " + viewer: http.StatusForbidden, "Bearer nonsense": http.StatusUnauthorized,
	} {
		if got := d.ask("POST "+raisePath, shown); got.Code != want {
			t.Errorf("%q: %d %s", shown, got.Code, got.Body)
		}
	}
}

func TestGuard_logsWhoWroteWhat(t *testing.T) {
	d := newDoor(t)
	token := d.create(access.Grant{Name: "anna", Role: access.Admin})
	d.ask("POST "+replacePath, "Bearer "+token)
	d.node.refusal = errors.New("cannot replace member: n3: it answers")
	d.ask("POST "+replacePath, "Bearer "+token)
	d.ask("GET /v1/status", "Bearer "+token)
	lines := strings.Split(strings.TrimSpace(d.log.String()), "\n")
	for i, status := range []string{"200", "409"} {
		want := `level=INFO msg="write requested" component=api who=anna token=` + strings.Split(token, "_")[1] +
			` from=192.0.2.1:1234 request="POST /v1/cluster/replace" status=` + status + ` member=n3`
		if len(lines) != 2 || !strings.HasSuffix(lines[i], want) {
			t.Errorf("got\n%s\nwant %s", &d.log, want)
		}
	}
}

// Whoever reads the log afterwards finds what was asked for, but nothing of what is delivered.
func TestGuard_logsWhatWasAskedFor(t *testing.T) {
	const bulk = `{"verb":"change","filter":{"topic":"orders.delay","target":"orders","prefix":"o-","from":"1800000000000","to":"1900000000000","states":["waiting"]},"reason":"r",` +
		`"change":{"shift":"1h","deliver_to":"parcels"},"dry_run":true}`
	for _, test := range []struct{ method, path, body, want string }{
		{"POST", "/v1/messages", `{"topic":"orders.delay","id":"a","deliver_after":"1h"}`, ` topic=orders.delay id=a to="" target=orders code=scheduled `},
		{"PATCH", "/v1/messages/orders.delay/order-7", `{"deliver_at":"1900000000000","deliver_to":"parcels","partition":3,"expires_after":"1h","value":{"text":"hunter2"},"key":null,"reason":"late"}`,
			` reason=late deliver_at=1900000000000 deliver_to=parcels partition=3 expires_after=1h other=key,value code=`},
		{"POST", "/v1/batches", `{"messages":[{"topic":"orders.delay","deliver_after":"1h"},{"topic":"orders.delay","deliver_after":"1h","deliver_to":"parcels"},{"topic":"orders.delay","deliver_after":"2h"},{"topic":"orders"}]}`,
			` messages=4 of="2 orders.delay to orders, 1 orders.delay to parcels" refused=1`},
		{"POST", "/v1/operations", bulk, ` verb=change topic=orders.delay target=orders reason=r dry_run=true prefix=o- from=1800000000000 to=1900000000000 states=waiting shift=1h deliver_to=parcels`},
		{"POST", "/v1/operations", `{"verb":"cancel","all":true,"reason":"r","dry_run":true}`, ` dry_run=true all=true`},
		{"POST", "/v1/operations/1/stop?reason=enough", "", ` operation=1 reason=enough`},
	} {
		d := newDoor(t)
		token := d.create(access.Grant{Name: "anna", Role: access.Admin})
		got := send(d.handler(), test.method, test.path, test.body, "Authorization", "Bearer "+token, "Content-Type", "application/json")
		if log := d.log.String(); !strings.Contains(log+" ", test.want) || strings.Contains(log, "hunter2") {
			t.Errorf("%s %s: %d %s, the log says\n%s\nwant %s", test.method, test.path, got.Code, got.Body, log, test.want)
		}
	}
	many := map[string]int{}
	for i := range mostNamed + 5 {
		many[fmt.Sprintf("t%02d", i)] = 1
	}
	if got := inWords(many); !strings.HasPrefix(got, "1 t00, 1 t01, ") || !strings.HasSuffix(got, ", 1 t19, and of 5 others") {
		t.Error(got)
	}
}

// A panickingNode has no answer.
type panickingNode struct{ *fakeNode }

func (panickingNode) Replace(context.Context, string) error { panic(http.ErrAbortHandler) }

func TestGuard_logsAWriteWhoseAnswerBreaksOff(t *testing.T) {
	d := newDoor(t)
	d.routes = NewHandler(panickingNode{d.node}, prometheus.NewRegistry(), Anyone(), slog.New(slog.NewTextHandler(&d.log, nil)))
	func() {
		defer func() { recover() }()
		d.ask("POST "+replacePath, "")
	}()
	if line := d.log.String(); !strings.Contains(line, "write requested") || !strings.Contains(line, "broken_off=true") {
		t.Errorf("logged %q", line)
	}
}

func TestGuard_passesTheTokenOnToTheLeader(t *testing.T) {
	d := newDoor(t)
	admin, viewer := d.create(access.Grant{Name: "anna", Role: access.Admin}), d.create(access.Grant{Name: "bert", Role: access.Viewer})
	leader := httptest.NewServer(d.handler())
	defer leader.Close()
	follower := &fakeNode{status: broker.Status{Node: "n2", State: "follower", Leader: "n1", Members: []broker.MemberStatus{{ID: "n1", API: leader.Listener.Addr().String()}, {ID: "n2"}}}}
	open := httptest.NewServer(NewHandler(follower, prometheus.NewRegistry(), Anyone(), quiet())) // one that was not told of tokens yet
	defer open.Close()
	address := open.Listener.Addr().String()
	if _, err := (Caller{Token: admin}).Client(address).RaiseLevel(t.Context()); err != nil || d.node.raised != 1 {
		t.Errorf("error %v, raised %d times", err, d.node.raised)
	}
	for _, token := range []string{viewer, ""} {
		if _, err := (Caller{Token: token}).Client(address).RaiseLevel(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "this needs ") || d.node.raised != 1 {
			t.Errorf("error %v, raised %d times", err, d.node.raised)
		}
	}
}

func TestClient_showsItsTokenToNobodyElse(t *testing.T) {
	var shown []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	asked := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer asked.Close()
	if err := (Caller{Token: "carillon_x"}).Client(asked.Listener.Addr().String()).Ready(t.Context()); err == nil || shown != nil {
		t.Errorf("error %v; another host was shown %q", err, shown)
	}
}
