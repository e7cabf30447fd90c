// Package issuer lets those in whom another system knows: it checks the tokens (JWTs) that an issuer
// of OpenID Connect has signed, and turns what they claim into a grant. The keys of the issuer are
// fetched beside the requests, which never wait for it.
package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/carillonmq/carillon/broker/access"
)

// A Config says whose tokens count, and what they allow.
type Config struct {
	URL       string // of the issuer, exactly as its tokens name it
	Audience  string // that tokens must be for
	CA        string // PEM file of the authorities that sign its certificate; "": the system's
	NameClaim string // says who has the token
	// RoleClaim has a text or a list of them. Its name is that of a claim, or else a path by dots
	// into claims within claims.
	RoleClaim string
	Roles     []Role // the first whose Value is in the claim counts
	// Now is the clock that tokens expire by; nil: the machine's.
	Now func() time.Time
}

// A Role is what is granted to who has the value in the claim. The name of the grant is not read.
type Role struct {
	Value string
	Grant access.Grant
}

// GrantID is the ID of every grant of an issuer, where a token of the file has its own.
const GrantID = "oidc"

const (
	// leeway is how far the clock of the issuer may be from ours.
	leeway = time.Minute
	// mostName bounds a name, in bytes: it stands in logs, and in what is replicated.
	mostName = 128
)

// algorithms are those whose check needs no secret: with the others, who knows the public key could
// sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// algorithmNames returns them as go-oidc takes them.
func algorithmNames() (names []string) {
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}

// An Issuer checks tokens by the keys that it has fetched last. Any goroutine may ask it.
type Issuer struct {
	config  Config
	log     *slog.Logger
	pace    pace
	keys    atomic.Pointer[keys]   // nil: not fetched yet
	problem atomic.Pointer[string] // of the last fetch; nil: none
	wanted  chan struct{}          // has one element while a key is looked for that is not known
}

// New returns an Issuer that knows no keys until Run has fetched them.
func New(c Config, log *slog.Logger) *Issuer {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Issuer{config: c, log: log.With("component", "oidc"), pace: usualPace(), wanted: make(chan struct{}, 1)}
}

// Problem returns why the keys could not be fetched when that was tried last, "" if they were. Those
// from before count meanwhile.
func (i *Issuer) Problem() string {
	if p := i.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Check returns what the token allows, or one of the errors of package access that says why nothing.
// It waits for nobody.
func (i *Issuer) Check(token string) (access.Grant, error) {
	signed, err := jose.ParseSigned(token, algorithms)
	if wrong := (*jose.ErrUnexpectedSignatureAlgorithm)(nil); errors.As(err, &wrong) {
		return access.Grant{}, fmt.Errorf("%w: its algorithm is %q", access.ErrAlgorithm, wrong.Got)
	}
	if err != nil || len(signed.Signatures) != 1 {
		return access.Grant{}, access.ErrUnreadable
	}
	known := i.keys.Load()
	if known == nil {
		return access.Grant{}, access.ErrIssuerAway
	}
	c := check{signed: signed, keys: known}
	verifier := oidc.NewVerifier(i.config.URL, &c, &oidc.Config{
		ClientID: i.config.Audience, SupportedSigningAlgs: algorithmNames(),
		SkipExpiryCheck: true, // since it has no leeway
	})
	verified, err := verifier.Verify(context.Background(), token) // asks nobody
	if errors.Is(c.refusal, access.ErrKeyUnknown) {
		i.want()
	}
	if err != nil {
		return access.Grant{}, c.why(i.config)
	}
	claims := map[string]any{}
	if err := verified.Claims(&claims); err != nil {
		return access.Grant{}, access.ErrUnreadable
	}
	if err := i.inTime(verified.Expiry, claims["nbf"]); err != nil {
		return access.Grant{}, err
	}
	return i.config.grant(claims)
}

// want has the keys fetched again, soon.
func (i *Issuer) want() {
	select {
	case i.wanted <- struct{}{}:
	default:
	}
}

// A check is that of one token's signature, as go-oidc asks for it.
type check struct {
	signed  *jose.JSONWebSignature
	keys    *keys
	refusal error
	payload []byte // of a signature that is right
}

// VerifySignature is for go-oidc; the token is the one that the check is made of.
func (c *check) VerifySignature(context.Context, string) (payload []byte, err error) {
	c.payload, c.refusal = c.keys.verify(c.signed)
	return c.payload, c.refusal
}

// why returns what made go-oidc refuse the token: it looks at the signature, the issuer and the
// audience in this order, and tells them apart in words alone.
func (c *check) why(config Config) error {
	if c.refusal != nil {
		return c.refusal
	}
	var claims struct {
		Issuer string `json:"iss"`
		// one that is for us was refused for another claim, which go-oidc could not read
		Audience any `json:"aud"`
	}
	if json.Unmarshal(c.payload, &claims) != nil {
		return access.ErrUnreadable
	}
	if claims.Issuer != config.URL {
		return fmt.Errorf("%w: %q, where api.oidc.issuer is %q", access.ErrIssuer, claims.Issuer, config.URL)
	}
	if slices.Contains(texts(claims.Audience), config.Audience) {
		return access.ErrUnreadable
	}
	return fmt.Errorf("%w: it wants %q in its claim aud", access.ErrAudience, config.Audience)
}

// inTime returns nil for a token between the two times, give or take the leeway.
func (i *Issuer) inTime(expiry time.Time, notBefore any) error {
	now := i.config.Now()
	if !now.Before(expiry.Add(leeway)) { // the zero time, too, of a token without exp
		return fmt.Errorf("%w: at %s by its claim exp", access.ErrExpired, expiry.UTC().Format(time.RFC3339))
	}
	switch seconds, ok := notBefore.(float64); {
	case notBefore != nil && !ok:
		return fmt.Errorf("%w: its claim nbf is no number", access.ErrUnreadable)
	case seconds > float64(now.Add(leeway).Unix()):
		return fmt.Errorf("%w: its claim nbf is %.0f", access.ErrNotYet, seconds)
	}
	return nil
}

// grant returns what the claims of a token allow that is sound.
func (c Config) grant(claims map[string]any) (access.Grant, error) {
	name, _ := claim(claims, c.NameClaim).(string)
	if name == "" || len(name) > mostName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return access.Grant{}, fmt.Errorf("%w: its claim %q (api.oidc.name_claim) is no text of 1 to %d printable bytes", access.ErrNameless, c.NameClaim, mostName)
	}
	values := texts(claim(claims, c.RoleClaim))
	for _, role := range c.Roles {
		if slices.Contains(values, role.Value) {
			g := role.Grant
			g.ID, g.Name = GrantID, name
			return g, nil
		}
	}
	return access.Grant{}, fmt.Errorf("%w: the claim %q of %s has none of the values in api.oidc.roles", access.ErrNoRole, c.RoleClaim, name)
}

// claim returns that of the name, or what the name leads to as a path by dots, such as
// realm_access.roles; nil: there is none.
func claim(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	for {
		outer, inner, nested := strings.Cut(name, ".")
		if !nested {
			return claims[name]
		}
		claims, _ = claims[outer].(map[string]any)
		name = inner
	}
}

// texts returns a text, or those of a list.
func texts(value any) (all []string) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, entry := range list {
		if text, ok := entry.(string); ok {
			all = append(all, text)
		}
	}
	return all
}
