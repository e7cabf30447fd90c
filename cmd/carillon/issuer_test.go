package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rogpeppe/go-internal/testscript"
)

// An idp is an issuer of OpenID Connect with one key, which it gives to who asks.
type idp struct {
	server *httptest.Server
	key    *ecdsa.PrivateKey
}

// startIssuer starts an idp for the rest of the script, at $ISSUER, and writes a token of it into each file,
// for the audience shop: of somebody in the group that the file is named after, without its ending.
func startIssuer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: issuer FILE...")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	p := &idp{key: key}
	p.server = httptest.NewServer(p)
	ts.Defer(p.server.Close)
	ts.Setenv("ISSUER", p.server.URL)
	for _, file := range args {
		group, _, _ := strings.Cut(file, ".")
		token, err := p.token(group)
		ts.Check(err)
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(token), 0o600))
	}
}

func (p *idp) token(group string) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: p.key}, nil)
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": p.server.URL, "aud": "shop", "exp": time.Now().Add(time.Hour).Unix(), "sub": "somebody of " + group, "groups": []string{group},
	})
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := any(map[string]any{"issuer": p.server.URL, "jwks_uri": p.server.URL + "/keys"})
	if r.URL.Path == "/keys" {
		body = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public()}}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
