package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/head"
)

// Callers says who may use an API.
type Callers struct {
	// Tokens returns those that are known at the moment. nil: none, and none are looked at.
	Tokens func() access.Book
	// Issued checks the tokens of an issuer, which are JWTs: access.ErrExpired and its like say why one
	// allows nothing. nil: there is no issuer.
	Issued func(token string) (access.Grant, error)
	// Anonymous lets those in who show no token, and may do everything then.
	Anonymous bool
	// Member reports whether a node of the cluster is at the other end of the connection: then who has sent a
	// request is who that node says. nil: no node is told so.
	Member func(*tls.ConnectionState) bool
	// Leader is how the leader is asked that a request is passed on to, with the token of
	// who sent it in place of its own.
	Leader Caller
}

// Anyone may do everything, without a token.
func Anyone() Callers { return Callers{Anonymous: true} }

// anonymous is what logs call somebody without a token.
const anonymous = "anonymous"

// Codes of answers that refuse a caller. They do not change.
const (
	CodeTokenMissing   = "token-missing"
	CodeTokenMalformed = "token-malformed"
	CodeTokenUnknown   = "token-unknown"
	CodeForbidden      = "forbidden"

	// Those of tokens that an issuer has signed.
	CodeTokenAlgorithm  = "token-algorithm"
	CodeTokenSignature  = "token-signature"
	CodeTokenKeyUnknown = "token-key-unknown"
	CodeTokenExpired    = "token-expired"
	CodeTokenNotYet     = "token-not-yet-valid"
	CodeTokenIssuer     = "token-issuer"
	CodeTokenAudience   = "token-audience"
	CodeTokenNameless   = "token-nameless"
)

// A refusal is how a caller is turned away.
type refusal struct {
	status       int
	code, remedy string
}

// of is the problem that answers with it, for the reason given.
func (r refusal) of(why string) *problem {
	return &problem{Problem: client.Problem{Status: r.status, Code: client.Code(r.code), Detail: why + r.remedy}}
}

// refusals has what answers each error of a token.
var refusals = map[error]refusal{
	access.ErrMalformed:  {http.StatusUnauthorized, CodeTokenMalformed, tokenRemedy},
	access.ErrUnknown:    {http.StatusUnauthorized, CodeTokenUnknown, tokenRemedy},
	access.ErrUnreadable: {http.StatusUnauthorized, CodeTokenMalformed, ": copy it whole, or get another of the issuer"},
	access.ErrAlgorithm:  {http.StatusUnauthorized, CodeTokenAlgorithm, ": have the issuer sign with one of these"},
	access.ErrSignature:  {http.StatusUnauthorized, CodeTokenSignature, ": copy it whole, or get another of the issuer"},
	access.ErrKeyUnknown: {http.StatusUnauthorized, CodeTokenKeyUnknown, "; it is being asked again: if the issuer signed it, try again in some seconds"},
	access.ErrExpired:    {http.StatusUnauthorized, CodeTokenExpired, ": get another of the issuer"},
	access.ErrNotYet:     {http.StatusUnauthorized, CodeTokenNotYet, ": wait, or set the clocks of issuer and nodes right"},
	access.ErrIssuer:     {http.StatusUnauthorized, CodeTokenIssuer, ": get one of that issuer"},
	access.ErrAudience:   {http.StatusUnauthorized, CodeTokenAudience, " (api.oidc.audience): ask the issuer for a token for it"},
	access.ErrNameless:   {http.StatusUnauthorized, CodeTokenNameless, ": have the issuer put it in, or name another claim"},
	access.ErrNoRole:     {http.StatusForbidden, CodeForbidden, ": give the role at the issuer, or add a value to the list"},
	access.ErrIssuerAway: {http.StatusServiceUnavailable, CodeUnavailable, " to this node, whose status says why: try again; tokens of `carillon token create` count meanwhile"},
}

const tokenRemedy = "; `carillon token create` makes one, programs send it as Authorization: Bearer TOKEN, carillon takes it from --token-file or CARILLON_TOKEN"

// identify returns who sent the request, or the problem that refuses it.
func (c Callers) identify(r *http.Request) (access.Grant, *problem) {
	if g, ok := c.vouchedFor(r); ok {
		return g, nil
	}
	shown := r.Header.Get("Authorization")
	if shown == "" && r.Header.Get(callerHeader) != "" { // nobody: whom it says is not to become anybody
		return access.Grant{}, refusal{http.StatusUnauthorized, CodeTokenUnknown, ": give all nodes the api.tls.ca and api.tls.client_ca by which each knows the others' certificates"}.of(
			"a node has passed this on and says who sent it, and is not known to this one as a member")
	}
	knowsNone := c.Tokens == nil && c.Issued == nil
	if knowsNone && shown != "" && r.Header.Get(forwardedHeader) != "" {
		return access.Grant{}, refusal{http.StatusUnauthorized, CodeTokenUnknown, ": give it the api.tokens or api.oidc of the other nodes, or ask it without a token"}.of(
			"the leader has no tokens to check this one with, which another node passed on")
	}
	if knowsNone || shown == "" && c.Anonymous {
		return access.Everything(anonymous), nil
	}
	if shown == "" {
		return access.Grant{}, refusal{http.StatusUnauthorized, CodeTokenMissing, tokenRemedy}.of("this needs a token")
	}
	g, err := c.check(bearer(r))
	if err == nil {
		return g, nil
	}
	for sentinel, refusal := range refusals {
		if errors.Is(err, sentinel) {
			return access.Grant{}, refusal.of(err.Error())
		}
	}
	return access.Grant{}, refusals[access.ErrMalformed].of(err.Error())
}

// check returns what the token allows. One of an issuer is told by its form: three parts between
// dots, where a token of the file has none.
func (c Callers) check(token string) (access.Grant, error) {
	switch {
	case c.Issued != nil && strings.Count(token, ".") == 2:
		return c.Issued(token)
	case c.Tokens == nil:
		return access.Grant{}, access.ErrUnreadable
	default:
		return c.Tokens().Check(token)
	}
}

// bearer returns the token that the request shows, "" if it shows none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// A visit is what is noted of a request while it is carried out.
type visit struct {
	asked   url.Values // its query
	who     access.Grant
	details []any // for the log, as slog takes them
	// still returns why the one who sent it may not have more of the answer, or nil: a token was revoked, or
	// allows something else by now. nil: nobody can tell.
	still func() *problem
}

// ended returns why an answer that takes long must not go on, or nil.
func (v *visit) ended() *problem {
	if v.still == nil {
		return nil
	}
	return v.still()
}

type visitKey struct{}

// note adds to what the log says of the request: keys and values in turns, no secrets.
func note(ctx context.Context, details ...any) {
	v := visitOf(ctx)
	v.details = append(v.details, details...)
}

// noteGiven notes those of the names and texts, in turns, that have a text.
func noteGiven(ctx context.Context, namesAndTexts ...string) {
	for given := range slices.Chunk(namesAndTexts, 2) {
		if given[1] != "" {
			note(ctx, given[0], given[1])
		}
	}
}

// visitOf returns the visit that the context is of; of a route that needs nothing, one of somebody
// who may do nothing.
func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// enter is how requests come to who serves the route: through the guard, as many at a time as there is
// room for, whole, and to the leader if it must be that.
func (h *handler) enter(to route, serve http.HandlerFunc) http.HandlerFunc {
	if to.need == (need{}) {
		return serve
	}
	return h.guard(to, h.gate.let(h.whole(to, h.onLeader(to, serve))))
}

// guard lets those through to the route who may use it, and logs every write that was let
// through: who, from where, what, and what became of it.
//
// Whom a request is about is read from its path and its query, here and by who serves it: so a query that
// could be read in two ways is refused.
func (h *handler) guard(to route, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, refused := h.callers.identify(r)
		if refused != nil {
			switch refused.Status {
			case http.StatusUnauthorized:
				w.Header().Set("WWW-Authenticate", `Bearer realm="carillon"`)
			case http.StatusServiceUnavailable:
				w.Header().Set("Retry-After", "5")
			}
			h.turnAway(w, r, *refused)
			return
		}
		asked, unclear := head.Query(r.URL)
		if unclear == nil {
			unclear = head.CheckConditions(r.Header)
		}
		if unclear != nil {
			h.complain(w, refuses(*unclear).told)
			return
		}
		if !to.need.met(who, r) {
			h.turnAway(w, r, problem{Problem: client.Problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: lacking(who, to.need)}})
			return
		}
		v := &visit{who: who, asked: asked, still: func() *problem { return h.callers.stillIs(who, r) }}
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		if isRead(r) {
			serve(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
		defer cancel()
		answered := &answerCode{ResponseWriter: w, code: http.StatusOK}
		whole := false
		defer func() { // also where serve panics, as a proxy does whose answer breaks off
			if !whole {
				note(ctx, "broken_off", true)
			}
			details := append([]any{"who", who.Name, "token", who.ID, "from", r.RemoteAddr, "request", r.Method + " " + r.URL.Path, "status", answered.code}, v.details...)
			h.log.Info("write requested", details...)
		}()
		serve(answered, r.WithContext(ctx))
		whole = true
	}
}

// stillIs returns why the request would be refused now, or would be another's.
func (c Callers) stillIs(who access.Grant, r *http.Request) *problem {
	now, refused := c.identify(r)
	if refused == nil && !reflect.DeepEqual(now, who) {
		refused = &problem{Problem: client.Problem{Status: http.StatusForbidden, Code: client.CodeForbidden, Detail: "the token allows something else since this was asked: ask again"}}
	}
	return refused
}

// writeTimeout bounds how long a write is worked on: an answer that it is in doubt is better than none.
const writeTimeout = answerTimeout - 5*time.Second

// asked reports whether the request has the parameter.
func asked(ctx context.Context, name string) bool { return visitOf(ctx).asked.Has(name) }

// forbidden refuses what is about messages of the topic for the target: it names the one of the two that the
// token is not for.
func forbidden(who access.Grant, topic, target string) *client.Problem {
	p := &client.Problem{Code: client.CodeForbidden, Field: "deliver_to", Value: target, Detail: lacking(who, need{permission: access.Operate})}
	if !who.IsFor(topic) {
		p.Field, p.Value = "topic", topic
	}
	return p
}

func lacking(who access.Grant, n need) string {
	switch {
	case !who.Holds(n.permission):
		return fmt.Sprintf("this needs the permission %s, which the token %s of %s with the role %s does not have", n.permission, who.ID, who.Name, who.Role)
	default:
		return fmt.Sprintf("the token %s of %s does not reach so far: it is for delay topics %q and targets %q (none named: all)", who.ID, who.Name, who.Topics, who.Targets)
	}
}

// turnAway answers, and logs once a minute for each host and code.
func (h *handler) turnAway(w http.ResponseWriter, r *http.Request, p problem) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	level := slog.LevelWarn
	if h.turnedAway.Again(host + "\n" + string(p.Code)) {
		level = slog.LevelDebug
	}
	h.log.Log(r.Context(), level, "request refused", "code", p.Code, "from", r.RemoteAddr, "request", r.Method+" "+r.URL.Path)
	h.complain(w, p)
}

// An answerCode remembers the status of the answer.
type answerCode struct {
	http.ResponseWriter
	code int
}

func (a *answerCode) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (a *answerCode) Unwrap() http.ResponseWriter { return a.ResponseWriter }
