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

// tlsConfig reads the files once to find what is wrong with them now. The client certificate is read
// again at every connection, so that it can be renewed without a restart.
func tlsConfig(c config.TLS, log *slog.Logger) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("kafka.tls.ca: %w: name a PEM file that can be read", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka.tls.ca %q: %w: name a PEM file with the brokers' authority", c.CA, errNoCertificate)
		}
	}
	if c.Cert == "" && c.Key == "" {
		return config, nil
	}
	pair := &clientPair{files: c, log: log}
	var err error
	if pair.usable, err = pair.read(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.now(), nil }
	return config, nil
}

// A clientPair is what brokers are shown that ask for a certificate. Any goroutine may use it.
type clientPair struct {
	files config.TLS
	log   *slog.Logger

	mu      sync.Mutex
	usable  *tls.Certificate // what the files said when they could last be used
	problem string           // that they have since, "" for none
}

// now returns what the files say or, while they cannot be used, said before: of a renewed pair one file is
// written first, and a connection that fails for that can cost a leader its term.
func (p *clientPair) now() *tls.Certificate {
	pair, err := p.read()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.usable, p.problem = pair, ""
		return pair
	}
	if problem := err.Error(); problem != p.problem {
		p.problem = problem
		p.log.Warn("client certificate for Kafka cannot be used, that from before is shown", "error", err)
	}
	return p.usable
}

func (p *clientPair) read() (*tls.Certificate, error) {
	cert, err := reload.File{Path: p.files.Cert}.Read()
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.cert: %w", err)
	}
	key, err := reload.File{Path: p.files.Key, Secret: true}.Read()
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("kafka.tls.cert %q with kafka.tls.key %q: %w: name PEM files that belong together", p.files.Cert, p.files.Key, err)
	}
	return &pair, nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialTLS lays TLS over dial and checks the certificate against the name that was dialed.
func dialTLS(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("split broker address: %w", err)
		}
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		named := config.Clone()
		named.ServerName = host
		conn := tls.Client(raw, named)
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
