package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/carillonmq/carillon/broker/access"
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
	shown := r.Header.Get("Authorization")
	if c.Tokens == nil && c.Issued == nil || shown == "" && c.Anonymous {
		return access.Everything(anonymous), nil
	}
	if shown == "" {
		return access.Grant{}, &problem{Status: http.StatusUnauthorized, Code: CodeTokenMissing, Detail: "this needs a token" + tokenRemedy}
	}
	g, err := c.check(bearer(r))
	if err == nil {
		return g, nil
	}
	for sentinel, refusal := range refusals {
		if errors.Is(err, sentinel) {
			return access.Grant{}, &problem{Status: refusal.status, Code: refusal.code, Detail: err.Error() + refusal.remedy}
		}
	}
	return access.Grant{}, &problem{Status: http.StatusUnauthorized, Code: CodeTokenMalformed, Detail: err.Error() + tokenRemedy}
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
	who     access.Grant
	details []any // for the log, as slog takes them
}

type visitKey struct{}

// note adds to what the log says of the request: keys and values in turns, no secrets.
func note(r *http.Request, details ...any) {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.details = append(v.details, details...)
	}
}

// guard lets those through to the route who may use it, and logs every write that was let
// through: who, from where, what, and what became of it.
func (h *handler) guard(to route) http.HandlerFunc {
	if to.need == (need{}) {
		return to.serve
	}
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
		if !to.need.met(who, r) {
			h.turnAway(w, r, problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: lacking(who, to.need)})
			return
		}
		v := &visit{who: who}
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			to.serve(w, r)
			return
		}
		answered := &answerCode{ResponseWriter: w, code: http.StatusOK}
		to.serve(answered, r)
		details := append([]any{"who", who.Name, "token", who.ID, "from", r.RemoteAddr, "request", r.Method + " " + r.URL.Path, "status", answered.code}, v.details...)
		h.log.Info("write requested", details...)
	}
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
	if h.turnedAway.Again(host + "\n" + p.Code) {
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
