package issuer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/carillonmq/carillon/broker/access"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An authority is an issuer as it is on the network, of keys that a test gives it.
type authority struct {
	t      *testing.T
	server *httptest.Server

	mu    sync.Mutex
	keys  []any
	calls string // what it says its URL is; "": the truth
	away  bool
	asked int
}

func newAuthority(t *testing.T, serve func(http.Handler) *httptest.Server) *authority {
	a := &authority{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /realm/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.away {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		name := a.url()
		if a.calls != "" {
			name = a.calls
		}
		a.answer(w, map[string]any{"issuer": name, "jwks_uri": a.server.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked++
		a.answer(w, map[string]any{"keys": a.keys})
	})
	a.server = serve(mux)
	t.Cleanup(a.server.Close)
	return a
}

func (a *authority) url() string { return a.server.URL + "/realm" }

func (a *authority) answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		a.t.Error(err)
	}
}

// set changes what the issuer says.
func (a *authority) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// A signer is a key of the issuer.
type signer struct {
	id        string
	algorithm jose.SignatureAlgorithm
	key       crypto.Signer
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Use: "sig"}
}

func signers(t *testing.T) map[jose.SignatureAlgorithm]signer {
	t.Helper()
	r, err1 := rsa.GenerateKey(rand.Reader, 2048)
	e, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, d, err3 := ed25519.GenerateKey(rand.Reader)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return map[jose.SignatureAlgorithm]signer{
		jose.RS256: {"r", jose.RS256, r}, jose.PS512: {"r", jose.PS512, r}, jose.ES256: {"e", jose.ES256, e}, jose.EdDSA: {"d", jose.EdDSA, d},
	}
}

// sign returns the token of the claims, with the key's id in its header unless that is "".
func sign(t *testing.T, algorithm jose.SignatureAlgorithm, id string, key any, claims map[string]any) string {
	t.Helper()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	var options jose.SignerOptions
	if id != "" {
		options.WithHeader("kid", id)
	}
	return signText(t, jose.SigningKey{Algorithm: algorithm, Key: key}, &options, string(text))
}

func signText(t *testing.T, key jose.SigningKey, options *jose.SignerOptions, text string) string {
	t.Helper()
	s, err := jose.NewSigner(key, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

const now = 1_800_000_000 // seconds

// known is an issuer as a node knows it.
func (a *authority) known(change func(*Config)) (*Issuer, *bytes.Buffer) {
	c := Config{
		URL: a.url(), Audience: "carillon", NameClaim: "email", RoleClaim: "groups",
		Roles: []Role{
			{"admins", access.Grant{Role: access.Admin, ReadPayload: true}},
			{"orders", access.Grant{Role: access.Operator, Topics: []string{"orders.*"}}},
		},
		Now: func() time.Time { return time.Unix(now, 0) },
	}
	if change != nil {
		change(&c)
	}
	var log bytes.Buffer
	return New(c, slog.New(slog.NewTextHandler(&log, nil))), &log
}

// claims are those of a sound token, with changes; nil takes one out.
func (a *authority) claims(changes map[string]any) map[string]any {
	all := map[string]any{
		"iss": a.url(), "aud": []string{"other", "carillon"}, "exp": now + 3600, "nbf": now - 10, "iat": now - 10,
		"sub": "1234", "email": "anna@example.com", "groups": []string{"staff", "orders"},
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}

func TestIssuer_grantsWhatTheClaimsSay(t *testing.T) {
	keys := signers(t)
	a := newAuthority(t, httptest.NewServer)
	a.keys = []any{keys[jose.ES256].public(), keys[jose.RS256].public(), keys[jose.EdDSA].public()}
	i, _ := a.known(nil)
	if err := i.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		for _, id := range []string{k.id, ""} { // without an id every key is tried
			got, err := i.Check(sign(t, k.algorithm, id, k.key, a.claims(nil)))
			want := access.Grant{ID: GrantID, Name: "anna@example.com", Role: access.Operator, Topics: []string{"orders.*"}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s, key %q: error %v, -want +got:\n%s", k.algorithm, id, err, diff)
			}
		}
	}
	k := keys[jose.ES256]
	for what, test := range map[string]struct {
		config  func(*Config)
		changes map[string]any
		name    string
		role    access.Role
	}{
		"the first value of the list counts": {nil, map[string]any{"groups": []string{"orders", "admins"}}, "anna@example.com", access.Admin},
		"a text in place of a list":          {nil, map[string]any{"groups": "admins"}, "anna@example.com", access.Admin},
		"an audience that is a text":         {nil, map[string]any{"aud": "carillon"}, "anna@example.com", access.Operator},
		"a token without nbf":                {nil, map[string]any{"nbf": nil}, "anna@example.com", access.Operator},
		"one that just expired":              {nil, map[string]any{"exp": now - 59}, "anna@example.com", access.Operator},
		"one of a clock before ours":         {nil, map[string]any{"nbf": now + 59}, "anna@example.com", access.Operator},
		"a claim within claims": {func(c *Config) { c.RoleClaim = "realm_access.roles" },
			map[string]any{"realm_access": map[string]any{"roles": []any{7, "admins"}}}, "anna@example.com", access.Admin},
		"a claim whose name has dots": {func(c *Config) { c.RoleClaim = "https://example.com/roles" },
			map[string]any{"https://example.com/roles": "admins"}, "anna@example.com", access.Admin},
		"another name": {func(c *Config) { c.NameClaim = "sub" }, nil, "1234", access.Operator},
	} {
		i, _ := a.known(test.config)
		if err := i.fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := i.Check(sign(t, k.algorithm, k.id, k.key, a.claims(test.changes)))
		if err != nil || got.Name != test.name || got.Role != test.role || got.ID != GrantID {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestIssuer_refusesWhatItDidNotIssueForThisCluster(t *testing.T) {
	keys := signers(t)
	a := newAuthority(t, httptest.NewServer)
	r, e := keys[jose.RS256], keys[jose.ES256]
	a.keys = []any{r.public(), e.public(), map[string]any{"kty": "oct", "kid": "o", "k": base64.RawURLEncoding.EncodeToString(make([]byte, 32))}}
	i, _ := a.known(nil)
	if err := i.fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(r.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	sound := sign(t, e.algorithm, e.id, e.key, a.claims(nil))
	parts := strings.Split(sound, ".")
	claims, err := json.Marshal(a.claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	stranger := signers(t)[jose.ES256]
	with := func(changes map[string]any) string { return sign(t, e.algorithm, e.id, e.key, a.claims(changes)) }
	for what, test := range map[string]struct {
		token string
		want  error
		says  string
	}{
		"expired":                            {with(map[string]any{"exp": now - 60}), access.ErrExpired, "at 2027-01-15T07:59:00Z"},
		"never expiring":                     {with(map[string]any{"exp": nil}), access.ErrExpired, ""},
		"not valid yet":                      {with(map[string]any{"nbf": now + 61}), access.ErrNotYet, ""},
		"not valid for ages":                 {with(map[string]any{"nbf": 1e300}), access.ErrNotYet, ""},
		"not valid before a text":            {with(map[string]any{"nbf": "1831536000"}), access.ErrUnreadable, "nbf"},
		"with a number for a name":           {with(map[string]any{"sub": 7}), access.ErrUnreadable, ""},
		"with a date for an expiry":          {with(map[string]any{"exp": "2027-01-15T09:59:00Z"}), access.ErrUnreadable, ""},
		"for another audience":               {with(map[string]any{"aud": "other"}), access.ErrAudience, `"carillon"`},
		"for no audience":                    {with(map[string]any{"aud": nil}), access.ErrAudience, ""},
		"for a part of the audience":         {with(map[string]any{"aud": "carillon2"}), access.ErrAudience, ""},
		"of another issuer":                  {with(map[string]any{"iss": "https://evil.example.com"}), access.ErrIssuer, "https://evil.example.com"},
		"of no issuer":                       {with(map[string]any{"iss": nil}), access.ErrIssuer, ""},
		"of another issuer and expired":      {with(map[string]any{"iss": "https://evil.example.com", "exp": 1}), access.ErrIssuer, ""},
		"of nobody":                          {with(map[string]any{"email": nil}), access.ErrNameless, `"email"`},
		"of a name with a line end":          {with(map[string]any{"email": "a\nb"}), access.ErrNameless, ""},
		"of an endless name":                 {with(map[string]any{"email": strings.Repeat("x", 129)}), access.ErrNameless, ""},
		"of a name that is a number":         {with(map[string]any{"email": 7}), access.ErrNameless, ""},
		"of somebody without a role":         {with(map[string]any{"groups": []string{"staff"}}), access.ErrNoRole, "anna@example.com"},
		"without the claim of roles":         {with(map[string]any{"groups": nil}), access.ErrNoRole, ""},
		"with a part of a role":              {with(map[string]any{"groups": "admin"}), access.ErrNoRole, ""},
		"not signed":                         {part(`{"alg":"none"}`) + "." + parts[1] + ".", access.ErrAlgorithm, `"none"`},
		"not signed, in capitals":            {part(`{"alg":"None"}`) + "." + parts[1] + ".", access.ErrAlgorithm, ""},
		"signed with the public key":         {sign(t, jose.HS256, r.id, public, a.claims(nil)), access.ErrAlgorithm, `"HS256"`},
		"signed with the public key, in DER": {sign(t, jose.HS256, r.id, der, a.claims(nil)), access.ErrAlgorithm, ""},
		"signed with a published secret":     {sign(t, jose.HS256, "o", make([]byte, 32), a.claims(nil)), access.ErrAlgorithm, ""},
		"signed by a stranger":               {sign(t, jose.ES256, e.id, stranger.key, a.claims(nil)), access.ErrSignature, ""},
		"signed by a stranger without id":    {sign(t, jose.ES256, "", stranger.key, a.claims(nil)), access.ErrKeyUnknown, ""},
		"signed by a key that it brings":     {signText(t, jose.SigningKey{Algorithm: jose.ES256, Key: stranger.key}, &jose.SignerOptions{EmbedJWK: true}, string(claims)), access.ErrKeyUnknown, ""},
		"signed by another key than named":   {sign(t, jose.ES256, r.id, e.key, a.claims(nil)), access.ErrSignature, ""},
		"of a key that there is not":         {sign(t, jose.ES256, "x", stranger.key, a.claims(nil)), access.ErrKeyUnknown, ""},
		"changed":                            {parts[0] + "." + part(`{"iss":"`+a.url()+`"}`) + "." + parts[2], access.ErrSignature, ""},
		"cut short":                          {sound[:len(sound)-10], access.ErrSignature, ""},
		"nothing":                            {"..", access.ErrAlgorithm, ""},
		"some text":                          {"a.b.c", access.ErrUnreadable, ""},
		"no claims":                          {parts[0] + ".." + parts[2], access.ErrSignature, ""},
		"a list of claims":                   {signText(t, jose.SigningKey{Algorithm: jose.ES256, Key: e.key}, nil, `[1]`), access.ErrUnreadable, ""},
		"no JSON":                            {signText(t, jose.SigningKey{Algorithm: jose.ES256, Key: e.key}, nil, `x`), access.ErrUnreadable, ""},
		"signed twice":                       {`{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"},{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`, access.ErrUnreadable, ""},
	} {
		got, err := i.Check(test.token)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || got.Role != "" {
			t.Errorf("%s: %+v, %v; want %v", what, got, err, test.want)
		}
		if signature := test.token[strings.LastIndex(test.token, ".")+1:]; err != nil && len(signature) > 20 && strings.Contains(err.Error(), signature[:20]) {
			t.Errorf("%s: the error shows the signature: %v", what, err)
		}
	}
	if _, err := i.Check(sound); err != nil {
		t.Error(err)
	}
}

func TestFetch_saysWhatIsWrongWithTheIssuer(t *testing.T) {
	keys := signers(t)
	a := newAuthority(t, httptest.NewServer)
	for what, test := range map[string]struct {
		change func()
		config func(*Config)
		says   string
	}{
		"another name":      {func() { a.calls = a.url() + "/" }, nil, `it calls itself "` + a.url() + `/": write this to api.oidc.issuer`},
		"away":              {func() { a.away = true }, nil, "503 Service Unavailable"},
		"no keys":           {func() { a.keys = nil }, nil, "/keys has no public key for signatures"},
		"keys to encrypt":   {func() { k := keys[jose.RS256].public(); k.Use = "enc"; a.keys = []any{k} }, nil, "/keys has no public key for signatures"},
		"unknown keys":      {func() { a.keys = []any{map[string]any{"kty": "XYZ"}, "x"} }, nil, "/keys has no public key for signatures"},
		"an endless answer": {func() { a.keys = []any{strings.Repeat("x", 2*mostAnswered)} }, nil, "unexpected end of JSON input"},
		"no such place":     {func() {}, func(c *Config) { c.URL += "/x" }, "404 Not Found"},
		"no authorities":    {func() {}, func(c *Config) { c.CA = "nowhere.pem" }, "api.oidc.ca: open nowhere.pem"},
	} {
		a.set(func() { a.calls, a.away, a.keys = "", false, []any{keys[jose.RS256].public()} })
		i, _ := a.known(test.config)
		a.set(test.change)
		if err := i.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %s", what, err, test.says)
		}
		if _, err := i.Check(sign(t, jose.RS256, "r", keys[jose.RS256].key, a.claims(nil))); !errors.Is(err, access.ErrIssuerAway) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFetch_wantsAnIssuerThatNobodyCanStandInFor(t *testing.T) {
	keys := signers(t)
	a := newAuthority(t, httptest.NewTLSServer)
	a.keys = []any{keys[jose.ES256].public()}
	i, _ := a.known(nil)
	if err := i.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("got %v", err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	i, _ = a.known(func(c *Config) { c.CA = path })
	if err := os.WriteFile(path, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.fetch(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "has no certificate in PEM") {
		t.Errorf("got %v", err)
	}
	// The file is read anew each time.
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := i.fetch(t.Context()); err != nil {
		t.Error(err)
	}
	for address, private := range map[string]bool{
		"https://example.com/keys": true, "http://127.0.0.1:8080/keys": true, "http://[::1]/keys": true, "http://localhost/keys": true,
		"http://example.com/keys": false, "http://127.0.0.1.example.com/keys": false, "ftp://localhost/keys": false, "": false,
	} {
		if _, err := ask(t.Context(), refusing{}.client(), address); errors.Is(err, errReached) != private {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// refusing stands for the network: what reaches it would have been asked.
type refusing struct{}

var errReached = errors.New("reached")

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errReached }
func (r refusing) client() *http.Client                          { return &http.Client{Transport: r} }

// An issuer that redirects to the clear is not followed there.
func TestFetch_followsNobodyToWhereItCanBeReadOnTheWay(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://192.0.2.1/", http.StatusFound))
	defer server.Close()
	i := New(Config{URL: server.URL}, slog.New(slog.DiscardHandler))
	if err := i.fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "http://192.0.2.1/ is not https") {
		t.Errorf("got %v", err)
	}
}

// Keys change without a restart; while the issuer is away those from before count.
func TestRun_takesNewKeysAndOutlastsAnIssuerThatIsAway(t *testing.T) {
	old, next := signers(t)[jose.ES256], signers(t)[jose.EdDSA]
	a := newAuthority(t, httptest.NewServer)
	a.keys, a.away = []any{old.public()}, true
	i, log := a.known(nil)
	i.pace = pace{every: time.Hour, soonest: time.Millisecond, retry: time.Millisecond, patient: 10 * time.Second}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- i.Run(ctx) }()

	with := func(s signer) error {
		_, err := i.Check(sign(t, s.algorithm, s.id, s.key, a.claims(nil)))
		return err
	}
	eventually(t, "the node says that the issuer is away", func() bool { return strings.Contains(i.Problem(), "503 Service Unavailable") })
	if err := with(old); !errors.Is(err, access.ErrIssuerAway) {
		t.Errorf("no keys: %v", err)
	}
	a.set(func() { a.away = false })
	eventually(t, "the first key counts", func() bool { return with(old) == nil })
	eventually(t, "the problem is gone", func() bool { return i.Problem() == "" })

	a.set(func() { a.away, a.keys = true, []any{next.public()} })
	if err := with(next); !errors.Is(err, access.ErrKeyUnknown) { // and has the keys fetched
		t.Errorf("a key that is not known: %v", err)
	}
	eventually(t, "the node says that the issuer is away", func() bool { return i.Problem() != "" })
	if err := with(old); err != nil {
		t.Errorf("the old key while the issuer is away: %v", err)
	}
	a.set(func() { a.away = false })
	eventually(t, "the second key counts", func() bool { return with(next) == nil })
	if err := with(old); !errors.Is(err, access.ErrKeyUnknown) {
		t.Errorf("a key that was taken back: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, says := range []string{`msg="keys of the issuer cannot be fetched, those from before count, if there are" component=oidc`, `msg="keys of the issuer are fetched again"`} {
		if n := strings.Count(log.String(), says); n != 2 {
			t.Errorf("%q is %d times in the log:\n%s", says, n, log)
		}
	}
}

// Tokens that nobody signed do not have the issuer asked without end.
func TestRun_asksNoMoreThanSoOftenForKeysThatThereAreNot(t *testing.T) {
	k := signers(t)[jose.ES256]
	a := newAuthority(t, httptest.NewServer)
	a.keys = []any{k.public()}
	i, _ := a.known(nil)
	i.pace = pace{every: time.Hour, soonest: time.Hour, retry: time.Hour, patient: 10 * time.Second}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- i.Run(ctx) }()
	eventually(t, "the keys are there", func() bool { return i.keys.Load() != nil })
	for range 100 {
		if _, err := i.Check(sign(t, k.algorithm, "made up", k.key, a.claims(nil))); !errors.Is(err, access.ErrKeyUnknown) {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if a.asked != 1 {
		t.Errorf("asked %d times", a.asked)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

func FuzzCheck_neverGrantsWhatWasNotSigned(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiJ9.e30.AA")
	f.Add("..")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	i := New(Config{URL: "https://a", Audience: "carillon", NameClaim: "sub", RoleClaim: "groups"}, slog.New(slog.DiscardHandler))
	i.keys.Store(&keys{[]jose.JSONWebKey{{Key: key.Public()}}})
	f.Fuzz(func(t *testing.T, token string) {
		if g, err := i.Check(token); err == nil || g.Role != "" {
			t.Errorf("%q: %+v, %v", token, g, err)
		}
	})
}
