package reach

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/reload"
)

// security is how connections to Kafka are made with TLS: by files that are read again at every connection, so that they
// can be renewed without a restart, and read once now, to find what is wrong with them.
type security struct {
	roots *renewed[*x509.CertPool]   // nil: the system's authorities
	pair  *renewed[*tls.Certificate] // nil: no client certificate
}

func newSecurity(c config.TLS, log *slog.Logger) (s security, err error) {
	if c.CA != "" {
		s.roots, err = newRenewed("authorities for Kafka cannot be used, those from before are", log, func() (*x509.CertPool, error) { return readRoots(c.CA) })
	}
	if err == nil && (c.Cert != "" || c.Key != "") {
		s.pair, err = newRenewed("client certificate for Kafka cannot be used, that from before is shown", log, func() (*tls.Certificate, error) { return readPair(c) })
	}
	return s, err
}

// config returns that of a connection to the host.
func (s security) config(host string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if s.roots != nil {
		config.RootCAs = s.roots.now()
	}
	if s.pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.pair.now(), nil }
	}
	return config
}

// renewed is what files say that may be written anew at any time. Any goroutine may use it.
type renewed[T any] struct {
	complaint string // in the log, where the files cannot be used
	read      func() (T, error)
	log       *slog.Logger

	mu      sync.Mutex
	usable  T      // what the files said when they could last be used
	problem string // that they have since, "" for none
}

func newRenewed[T any](complaint string, log *slog.Logger, read func() (T, error)) (*renewed[T], error) {
	usable, err := read()
	if err != nil {
		return nil, err
	}
	return &renewed[T]{complaint: complaint, read: read, log: log, usable: usable}, nil
}

// now returns what the files say or, while they cannot be used, said before: of a renewed pair one file is
// written first, and a connection that fails for that can cost a leader its term.
func (r *renewed[T]) now() T {
	value, err := r.read()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.usable, r.problem = value, ""
		return value
	}
	if problem := err.Error(); problem != r.problem {
		r.problem = problem
		r.log.Warn(r.complaint, "error", err)
	}
	return r.usable
}

func readRoots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.ca: %w: name a PEM file that can be read", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("kafka.tls.ca %q: %w: name a PEM file with the brokers' authority", path, errNoCertificate)
	}
	if err := reload.CheckPEM(text); err != nil {
		return nil, fmt.Errorf("kafka.tls.ca %q: %w", path, err)
	}
	return roots, nil
}

func readPair(files config.TLS) (*tls.Certificate, error) {
	cert, err := reload.File{Path: files.Cert}.Read()
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.cert: %w", err)
	}
	key, err := reload.File{Path: files.Key, Secret: true}.Read()
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.cert %q with kafka.tls.key %q: %w: name PEM files that belong together", files.Cert, files.Key, err)
	}
	return &pair, nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialTLS lays TLS over dial and checks the certificate against the name that was dialed.
func dialTLS(dial dialFunc, s security) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("split broker address: %w", err)
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, s.config(host))
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, fmt.Errorf("shake hands with %s: %w", address, err)
		}
		return conn, nil
	}
}

// saslMechanism returns nil when no login is configured.
func saslMechanism(c config.SASL) (sasl.Mechanism, error) {
	scramAuth := scram.Auth{User: c.Username, Pass: c.Password.Reveal()}
	switch c.Mechanism {
	case "":
		return nil, nil
	case "plain":
		return plain.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsMechanism(), nil
	case "scram-256":
		return scramAuth.AsSha256Mechanism(), nil
	case "scram-512":
		return scramAuth.AsSha512Mechanism(), nil
	}
	return nil, fmt.Errorf("kafka.sasl.mechanism %q: %w: use plain, scram-256 or scram-512", c.Mechanism, errMechanism)
}
