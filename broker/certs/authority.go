package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// backdated is how far clocks of the machines may differ when a new certificate is used.
const backdated = time.Hour

// A Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority returns a CA of the name that signs for so long.
func NewAuthority(name string, now time.Time, lasts time.Duration) (Pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdated), NotAfter: now.Add(lasts),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, // it signs no other CA
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, nil, nil)
}

// Issue returns a certificate that the CA signs, for a node to show on either end of a
// connection, of the names: hosts, addresses, and the node's id, which comes first.
func (ca Pair) Issue(names []string, now time.Time, lasts time.Duration) (Pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotBefore: now.Add(-backdated), NotAfter: now.Add(lasts),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return ca.issue(template)
}

// issue signs the template.
func (ca Pair) issue(template *x509.Certificate) (Pair, error) {
	chain, err := readChain("the CA", ca.Cert)
	if err != nil {
		return Pair{}, err
	}
	block, _ := pem.Decode(ca.Key)
	if block == nil {
		return Pair{}, fmt.Errorf("the key of the CA is no PEM: name the one that `carillon cert init` made")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Pair{}, fmt.Errorf("read the key of the CA: %w", err)
	}
	if chain[0].NotAfter.Before(template.NotAfter) {
		return Pair{}, fmt.Errorf("the CA ends at %s, before the certificate would: make a new CA with `carillon cert init`, or a shorter certificate", chain[0].NotAfter.UTC().Format(time.RFC3339))
	}
	return sign(template, chain[0], key)
}

// IssueCaller returns a pair that the authority has signed for a program that calls nodes. It is issued to no
// host and no id, whatever its name, so that it is taken for no node: what members say of others is believed.
func (ca Pair) IssueCaller(name string, now time.Time, lasts time.Duration) (Pair, error) {
	return ca.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdated), NotAfter: now.Add(lasts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// NodeNames returns the hosts, ids and addresses that the certificate in the text is issued to: none if it is one of
// IssueCaller. An error names the path, where the text is from.
func NodeNames(path string, text []byte) ([]string, error) {
	chain, err := readChain(path, text)
	if err != nil {
		return nil, err
	}
	return namesIn(chain[0]), nil
}

// sign makes a key and signs its certificate; by itself without a CA.
func sign(template, ca *x509.Certificate, caKey any) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Pair{}, fmt.Errorf("make a serial number: %w", err)
	}
	if ca == nil {
		ca, caKey = template, key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		return Pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("write a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}, nil
}
