// Package certs is TLS of listeners and among nodes: certificates read from files and read
// again while the program runs, the check of who a peer is, and a small authority that
// makes certificates.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/carillonmq/carillon/broker/reload"
)

// Paths name PEM files. All but Cert and Key, which come together, can be empty.
type Paths struct {
	Cert, Key string // what this side shows, the certificate first and then what signed it
	CA        string // who signs the certificates of those that are dialled; "": the system's
	ClientCA  string // who signs those of the ones that dial; "": they need none
}

// A Bundle is what such files say. It does not change.
type Bundle struct {
	Certificate *tls.Certificate // nil: none
	CA          *x509.CertPool   // nil: the system's
	ClientCA    *x509.CertPool   // nil: who dials needs no certificate
	// Expiry is when the first of the certificates that this side shows ends; zero: none is shown.
	Expiry time.Time
	// overdue is when the first of them should have been replaced at the latest.
	overdue time.Time
}

// Files are those that a Bundle is read from, in the order that Read takes their texts.
func (p Paths) Files() []reload.File {
	var files []reload.File
	for _, f := range []reload.File{{Path: p.Cert}, {Path: p.Key, Secret: true}, {Path: p.CA}, {Path: p.ClientCA}} {
		if f.Path != "" {
			files = append(files, f)
		}
	}
	return files
}

// ReadFiles reads the Files once.
func (p Paths) ReadFiles() (Bundle, error) {
	var texts [][]byte
	for _, file := range p.Files() {
		text, err := file.Read()
		if err != nil {
			return Bundle{}, err
		}
		texts = append(texts, text)
	}
	return p.Read(texts)
}

// Read returns what the texts of the Files say. It refuses a pair that does not fit, and
// certificates that are not valid at the moment. An error names the file and what to do.
func (p Paths) Read(texts [][]byte) (b Bundle, err error) {
	if p.Cert != "" {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return Bundle{}, fmt.Errorf("%s and %s: %w: name a certificate and its key, PEM and not encrypted", p.Cert, p.Key, err)
		}
		if b.Expiry, b.overdue, err = p.validity(texts[0]); err != nil {
			return Bundle{}, err
		}
		b.Certificate, texts = &pair, texts[2:]
	}
	if p.CA != "" {
		if b.CA, err = readPool(p.CA, texts[0]); err != nil {
			return Bundle{}, err
		}
		texts = texts[1:]
	}
	if p.ClientCA != "" {
		b.ClientCA, err = readPool(p.ClientCA, texts[0])
	}
	return b, err
}

// Dial connects by TLS to the host of the address, whose certificate must be issued to it.
func (b Bundle) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return (&tls.Dialer{Config: b.Caller()}).DialContext(ctx, network, addr)
}

// Caller returns how this side speaks TLS when it calls, as Dial does.
func (b Bundle) Caller() *tls.Config {
	config := &tls.Config{RootCAs: b.CA}
	if b.Certificate != nil {
		config.Certificates = []tls.Certificate{*b.Certificate}
	}
	return config
}

// CheckShown returns an error unless what this side shows is issued to one of the names, as
// those who dial it want, and those whom it dials where they want certificates.
func (b Bundle) CheckShown(names []string) error {
	switch shown := b.Certificate.Leaf; {
	case namesOne(shown, names), b.ClientCA == nil && isOne(shown, names):
		return nil
	case isOne(shown, names):
		return fmt.Errorf("the certificate is issued to %s, one of %q by a wildcard alone, and no node takes this one for a member by that: name one that is issued to its id or host", issuedTo(shown), names)
	}
	return fmt.Errorf("the certificate is issued to %s, and the others want one of %q: name that of this node", issuedTo(b.Certificate.Leaf), names)
}

// CheckSigned returns an error unless other nodes, which trust what p's CA and ClientCA name, take what this side shows:
// by CA when they dial it, by ClientCA when it dials them. An authority that is not named is not asked. During a change of
// authorities both are in these files, or the new certificate comes too early.
func (b Bundle) CheckSigned(p Paths) error {
	var chain []*x509.Certificate
	for _, der := range b.Certificate.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("%s: certificate %d: %w: put a sound one in its place", p.Cert, len(chain)+1, err)
		}
		chain = append(chain, c)
	}
	for _, end := range []struct {
		path        string
		authorities *x509.CertPool
		usage       x509.ExtKeyUsage
		name, does  string
	}{
		{p.CA, b.CA, x509.ExtKeyUsageServerAuth, "server", "dial this one"},
		{p.ClientCA, b.ClientCA, x509.ExtKeyUsageClientAuth, "client", "are dialled by this one"},
	} {
		if end.authorities == nil {
			continue
		}
		err := verify(chain, end.authorities, end.usage)
		if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.IncompatibleUsage {
			return fmt.Errorf("%s: the certificate is not for authentication as a %s, so nodes that %s would refuse it: have it issued with the extended key usages serverAuth and clientAuth", p.Cert, end.name, end.does)
		}
		if err != nil {
			return fmt.Errorf("%s: by the authorities in %s nodes that %s would refuse the certificate: %w: name one that these have signed, with what lies between behind it, or put its authority into that file first, on all nodes", p.Cert, end.path, end.does, err)
		}
	}
	return nil
}

// renewWithin is the time before a certificate ends in which there should be a new one, or a quarter of its own time if
// that is less: those of an authority that renews them every day are not always late.
const renewWithin = 7 * 24 * time.Hour

// Ending returns what is wrong with the certificates that this side shows, which the path names, once they end soon or
// have ended; "": nothing. What was valid when it was read stays in force.
func (b Bundle) Ending(path string, now time.Time) string {
	switch at := b.Expiry.UTC().Format(time.RFC3339); {
	case now.Before(b.overdue):
		return ""
	case now.After(b.Expiry):
		return fmt.Sprintf("%s: the certificate ended at %s, and who dials refuses it: put a new one and its key in their places", path, at)
	default:
		return fmt.Sprintf("%s: the certificate ends at %s, and who dials refuses it then: put a new one and its key in their places", path, at)
	}
}

// validity returns when the first certificate of the chain ends, and when the first is overdue.
func (p Paths) validity(text []byte) (expiry, overdue time.Time, err error) {
	chain, err := readChain(p.Cert, text)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	for _, c := range chain {
		now := time.Now()
		if now.Before(c.NotBefore) {
			return time.Time{}, time.Time{}, fmt.Errorf("%s: the certificate of %q is valid from %s on only: correct this machine's clock, or name another", p.Cert, c.Subject, c.NotBefore.UTC().Format(time.RFC3339))
		}
		if now.After(c.NotAfter) {
			return time.Time{}, time.Time{}, fmt.Errorf("%s: the certificate of %q ended at %s: put a new one in its place", p.Cert, c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
		}
		if expiry.IsZero() || c.NotAfter.Before(expiry) {
			expiry = c.NotAfter
		}
		late := c.NotAfter.Add(-min(renewWithin, c.NotAfter.Sub(c.NotBefore)/4))
		if overdue.IsZero() || late.Before(overdue) {
			overdue = late
		}
	}
	return expiry, overdue, nil
}

func readPool(path string, text []byte) (*x509.CertPool, error) {
	chain, err := readChain(path, text)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range chain {
		pool.AddCert(c)
	}
	return pool, nil
}

// readChain returns the certificates in a PEM text, one at least.
func readChain(path string, text []byte) (chain []*x509.Certificate, err error) {
	if err := reload.CheckPEM(text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w: put a sound one in its place", path, len(chain)+1, err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("%s holds no certificate: name a PEM file that begins with -----BEGIN CERTIFICATE-----", path)
	}
	return chain, nil
}
