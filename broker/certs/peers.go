package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillonmq/carillon/broker/reload"
	"github.com/carillonmq/carillon/raftfsm/repeats"
)

// Options say how nodes reach each other by TLS.
type Options struct {
	Bundle *reload.Keeper[Bundle] // what is shown and trusted

	// Names are what the certificate of a member may be issued to, any of them, by the
	// address at which the member is dialled.
	Names map[string][]string

	// OnlyMembers takes TLS 1.3 alone, and who dials must be one of Names. Else anybody may
	// dial whom Bundle.ClientCA lets.
	OnlyMembers bool

	// Optional takes connections without TLS as well, and dials without it where nobody
	// answers by it: for the time in which not all nodes have it.
	Optional bool

	// Listen and Dial replace TCP when set.
	Listen func(network, addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)

	Logger *slog.Logger
}

// Peers are the nodes as this one reaches them, and is reached, by TLS. Any goroutine may
// use it.
//
// What the files say is looked up for each connection, so that a change needs no restart.
// Sessions are never resumed: a resumed one would not be checked against a CA that has
// changed meanwhile. Who the peer is, is checked in VerifyConnection, which alone runs for
// every connection that comes about.
type Peers struct {
	o     Options
	plain *repeats.Subjects // hosts without TLS

	mu    sync.Mutex
	conns map[net.Conn]struct{} // with TLS, or maybe so
}

// NewPeers returns the peers; the caller runs Run beside them.
func NewPeers(o Options) *Peers {
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return &Peers{o: o, plain: repeats.New(), conns: map[net.Conn]struct{}{}}
}

// Listen listens for TLS at the address. It does not block; handshakes are done by the
// first Read of what is accepted.
func (p *Peers) Listen(network, addr string) (net.Listener, error) {
	l, err := p.o.Listen(network, addr)
	if err != nil {
		return nil, err
	}
	return p.Over(l), nil
}

// Over returns the listener with TLS, which closes l with it.
func (p *Peers) Over(l net.Listener) net.Listener { return &listener{Listener: l, peers: p} }

type listener struct {
	net.Listener
	peers *Peers
}

// Accept returns a *tls.Conn, which net/http knows, where anybody may dial by TLS alone.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p := l.peers
	c = p.track(c)
	if p.o.Optional {
		return &eitherConn{Conn: c, peers: p}, nil
	}
	return p.ending(tls.Server(c, p.server()), c), nil
}

// ending returns t, over c, as it is to be closed.
func (p *Peers) ending(t *tls.Conn, c net.Conn) net.Conn {
	if p.o.OnlyMembers {
		return abruptConn{t, c}
	}
	return t
}

// An abruptConn is closed without a good-bye. TLS would wait seconds for a peer that reads
// nothing, while a node closes one after the other; nodes frame what they say and need none.
type abruptConn struct {
	*tls.Conn
	under net.Conn
}

func (c abruptConn) Close() error { return c.under.Close() }

func (p *Peers) server() *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.serverNow(), nil }}
}

func (p *Peers) serverNow() *tls.Config {
	b := p.o.Bundle.InForce()
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		Certificates: []tls.Certificate{*b.Certificate}, SessionTicketsDisabled: true,
	}
	switch {
	case b.ClientCA != nil:
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, b.ClientCA
	case b.CA != nil: // who shows none, or any, is let in; IsMember judges what is shown
		c.ClientAuth, c.ClientCAs = tls.RequestClientCert, b.CA
	}
	if p.o.OnlyMembers {
		c.MinVersion, c.NextProtos = tls.VersionTLS13, nil
		c.VerifyConnection = func(s tls.ConnectionState) error { return p.checkDialler(s.PeerCertificates) }
	}
	return c
}

// IsMember reports whether who dialled has shown the certificate of a member: what that node says of others can
// be believed. The authorities are those in force now, since a connection outlives a change of them: those of
// callers or, where callers need no certificate, those of nodes, by which this one would show a token to
// whoever has such a certificate. So a node is believed before all of them ask for certificates.
func (p *Peers) IsMember(s *tls.ConnectionState) bool {
	if s == nil || p.checkDialler(s.PeerCertificates) != nil {
		return false
	}
	b := p.o.Bundle.InForce()
	trusted := b.ClientCA
	if trusted == nil {
		trusted = b.CA
	}
	return trusted != nil && verify(s.PeerCertificates, trusted, x509.ExtKeyUsageClientAuth) == nil
}

// checkDialler wants the certificate of any member.
func (p *Peers) checkDialler(shown []*x509.Certificate) error {
	if len(shown) == 0 {
		return ErrNoCertificate
	}
	for _, names := range p.o.Names {
		if namesOne(shown[0], names) {
			return nil
		}
	}
	return fmt.Errorf("%w: it is for %s", ErrNoMember, issuedTo(shown[0]))
}

// Dial connects to the address and shakes hands, both before ctx ends.
func (p *Peers) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := p.o.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c = p.track(c)
	t := tls.Client(c, p.client(addr))
	err = t.HandshakeContext(ctx)
	if err == nil {
		return p.ending(t, c), nil
	}
	_ = c.Close() // t has nothing to say to it any more
	if !p.o.Optional || !speaksNoTLS(err) {
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	p.warn("dialled without TLS, which the other side does not speak: let it, then take tls.optional out", addr)
	return p.o.Dial(ctx, network, addr)
}

// speaksNoTLS reports whether the handshake ended as it does with a peer from before TLS:
// by an answer of another form, or by hanging up on us. An alert is TLS, and what it says is
// no reason to go on without.
func speaksNoTLS(err error) bool {
	_, other := errors.AsType[tls.RecordHeaderError](err)
	return other || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// client returns the configuration to dial with. A certificate may be issued to the id of
// a member instead of its host, so the chain and the name are both checked here.
func (p *Peers) client(addr string) *tls.Config {
	b := p.o.Bundle.InForce()
	names, known := p.o.Names[addr]
	if host, _, err := net.SplitHostPort(addr); !known && err == nil {
		names = []string{host}
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(s tls.ConnectionState) error { return checkDialled(s.PeerCertificates, b.CA, names) },
	}
	if p.o.OnlyMembers {
		c.MinVersion = tls.VersionTLS13
	}
	if b.Certificate != nil {
		c.Certificates = []tls.Certificate{*b.Certificate}
	}
	return c
}

func checkDialled(shown []*x509.Certificate, ca *x509.CertPool, names []string) error {
	if len(shown) == 0 {
		return ErrNoCertificate
	}
	if err := verify(shown, ca, x509.ExtKeyUsageServerAuth); err != nil {
		return err
	}
	if !isOne(shown[0], names) {
		return fmt.Errorf("%w: it is for %s, and %q was dialled", ErrNoMember, issuedTo(shown[0]), names)
	}
	return nil
}

// verify checks that the authorities, nil for the system's, have signed the first certificate for the usage,
// by way of the others.
func verify(shown []*x509.Certificate, authorities *x509.CertPool, usage x509.ExtKeyUsage) error {
	rest := x509.NewCertPool()
	for _, c := range shown[1:] {
		rest.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: rest, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// isOne reports whether the certificate is issued to one of the names: ids of members,
// hosts, addresses. An id need not have the form of a host.
func isOne(c *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains(c.DNSNames, name) || c.VerifyHostname(name) == nil
	})
}

// namesOne is isOne without wildcards. Who dials says who it is: one of *.example would be any member whose host
// is there, and its word about callers would be believed.
func namesOne(c *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		name = strings.TrimSuffix(name, ".") // as an address may end that no search domain is tried for
		ip := net.ParseIP(name)
		return ip != nil && slices.ContainsFunc(c.IPAddresses, ip.Equal) ||
			slices.ContainsFunc(c.DNSNames, func(issued string) bool { return strings.EqualFold(issued, name) })
	})
}

func issuedTo(c *x509.Certificate) string { return fmt.Sprintf("%q", namesIn(c)) }

// namesIn returns all that the certificate is issued to.
func namesIn(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// retireWithin is the time in which connections from before a change are closed.
const retireWithin = time.Minute

// Run closes, after each change of the files, the connections from before it within a
// minute, each at a moment of its own, until ctx ends. It returns nil then.
func (p *Peers) Run(ctx context.Context) error {
	replaced := p.o.Bundle.Replaced()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-replaced:
		}
		replaced = p.o.Bundle.Replaced() // before the connections are looked at: the next change closes it
		p.mu.Lock()
		for c := range p.conns {
			time.AfterFunc(rand.N(retireWithin), func() { _ = c.Close() }) // it may be closed already
		}
		p.o.Logger.Info("certificates have changed, connections from before are closed within a minute", "connections", len(p.conns))
		p.mu.Unlock()
	}
}

func (p *Peers) track(c net.Conn) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trackedConn{Conn: c, peers: p, replaced: p.o.Bundle.Replaced()}
	p.conns[t] = struct{}{}
	return t
}

// A trackedConn is known to its peers until it is closed.
type trackedConn struct {
	net.Conn
	peers    *Peers
	replaced <-chan struct{} // closed when the files have changed since it began
}

// Outdated reports whether the files have changed since the connection began, so that the other side might not
// be let in any more.
func (c *trackedConn) Outdated() bool {
	select {
	case <-c.replaced:
		return true
	default:
		return false
	}
}

func (c *trackedConn) Close() error {
	c.peers.mu.Lock()
	delete(c.peers.conns, c)
	c.peers.mu.Unlock()
	return c.Conn.Close()
}

// warn says once a minute of each host that something goes on without TLS.
func (p *Peers) warn(text, addr string) {
	host, _, _ := net.SplitHostPort(addr)
	level := slog.LevelWarn
	if p.plain.Again(text + "\n" + host) {
		level = slog.LevelDebug
	}
	p.o.Logger.Log(context.Background(), level, text, "peer", addr)
}
