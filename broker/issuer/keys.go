package issuer

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/reload"
)

// keys are those of the issuer that check signatures. They do not change.
type keys struct{ all []jose.JSONWebKey }

// verify returns what the signature is for, when one of the keys made it that could have: the one of
// its id, or without an id any.
func (k *keys) verify(signed *jose.JSONWebSignature) ([]byte, error) {
	header := signed.Signatures[0].Header
	refusal := access.ErrKeyUnknown
	for _, key := range k.all {
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, nil
		}
		if header.KeyID != "" { // without it another key may have signed, one to come
			refusal = access.ErrSignature
		}
	}
	return nil, refusal
}

// A pace says when the keys are fetched.
type pace struct {
	every   time.Duration // as long as all is well
	soonest time.Duration // after one fetch, when a key is looked for; tokens that nobody signed name any
	retry   time.Duration // after one that failed, twice as long each time, up to every
	patient time.Duration // for one
}

func usualPace() pace {
	return pace{every: 5 * time.Minute, soonest: 5 * time.Second, retry: time.Second, patient: 10 * time.Second}
}

// Run fetches the keys until ctx ends, at once, every five minutes, and soon after a token has named
// one that is not known, and returns nil. One goroutine may run it.
func (i *Issuer) Run(ctx context.Context) error {
	failed := 0
	for {
		err := i.fetch(ctx)
		if ctx.Err() != nil {
			return nil
		}
		i.tell(err)
		wait, wanted := i.pace.every, i.wanted
		if failed++; err == nil {
			failed = 0
		} else if wait = min(wait, i.pace.retry<<min(failed-1, 20)); wait < i.pace.every {
			wanted = nil // it is tried soon anyway
		}
		if !i.rest(ctx, wait, wanted) {
			return nil
		}
	}
}

// rest waits so long, or for less, but not for less than the soonest, when a key is wanted. It reports
// whether ctx goes on.
func (i *Issuer) rest(ctx context.Context, wait time.Duration, wanted <-chan struct{}) bool {
	least := time.NewTimer(min(i.pace.soonest, wait))
	defer least.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-least.C:
	}
	rest := time.NewTimer(wait - min(i.pace.soonest, wait))
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	case <-wanted:
	}
	return true
}

// tell notes what became of a fetch, and logs what is new of that.
func (i *Issuer) tell(err error) {
	before, now, cause := i.Problem(), "", ""
	if err != nil {
		cause = short(err.Error())
		now = fmt.Sprintf("oidc: keys of %s: %s", i.config.URL, cause)
	}
	i.problem.Store(&now)
	switch {
	case now != "" && now != before:
		i.log.Error("keys of the issuer cannot be fetched, those from before count, if there are", "issuer", i.config.URL, "error", cause)
	case now == "" && before != "":
		i.log.Info("keys of the issuer are fetched again", "issuer", i.config.URL)
	}
}

// mostShown is how many bytes of a cause are told.
const mostShown = 200

// short returns the beginning of a cause, which ends with all of the page that a server has answered with. Such a page may name the
// request, too, so that each try seems to fail for another reason.
func short(cause string) string {
	cause, _, cut := strings.Cut(cause, "\n")
	if len(cause) > mostShown {
		cause, cut = strings.ToValidUTF8(cause[:mostShown], ""), true
	}
	if cut {
		cause += " ..."
	}
	return cause
}

// fetch asks the issuer where its keys are, and for them.
func (i *Issuer) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, i.pace.patient)
	defer cancel()
	client, err := i.client()
	if err != nil {
		return err
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), i.config.URL)
	if wrong := (*oidc.IssuerMismatchError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("it calls itself %q: write this to api.oidc.issuer", wrong.Discovered)
	}
	if err != nil {
		return err
	}
	var at struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&at); err != nil {
		return err
	}
	all, err := ask(ctx, client, at.Keys)
	if err != nil {
		return err
	}
	i.keys.Store(&keys{all})
	return nil
}

// ask returns the keys at the address that check signatures.
func ask(ctx context.Context, client *http.Client, address string) (useful []jose.JSONWebKey, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("jwks_uri: %w", err)
	}
	if err := private(request.URL); err != nil {
		return nil, fmt.Errorf("jwks_uri: %w", err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", address, answer.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil { // of a kind that is not known here: the others count
			continue
		}
		if key.IsPublic() && key.Valid() && cmp.Or(key.Use, "sig") == "sig" { // a symmetric one is not public
			useful = append(useful, key)
		}
	}
	if len(useful) == 0 {
		return nil, fmt.Errorf("%s has no public key for signatures", address)
	}
	return useful, nil
}

// client returns what asks the issuer, by the authorities as their file has them now.
func (i *Issuer) client() (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if i.config.CA != "" {
		text, err := os.ReadFile(i.config.CA)
		if err != nil {
			return nil, fmt.Errorf("api.oidc.ca: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("api.oidc.ca: %s has no certificate in PEM", i.config.CA)
		}
		if err := reload.CheckPEM(text); err != nil {
			return nil, fmt.Errorf("api.oidc.ca: %s: %w", i.config.CA, err)
		}
	}
	return &http.Client{Transport: bounded{transport}, CheckRedirect: func(next *http.Request, been []*http.Request) error {
		if len(been) >= 5 {
			return errors.New("it redirects without end")
		}
		return private(next.URL)
	}}, nil
}

// private returns nil when nobody on the way can answer in the place of the address.
func private(address *url.URL) error {
	ip := net.ParseIP(address.Hostname())
	if address.Scheme == "https" || address.Scheme == "http" && (strings.EqualFold(address.Hostname(), "localhost") || ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("%s is not https: whoever is on the way could give keys of their own", address)
}

// mostAnswered bounds an answer of the issuer in bytes.
const mostAnswered = 1 << 20

// bounded ends answers that go on and on.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, mostAnswered), answer.Body}
	return answer, nil
}
