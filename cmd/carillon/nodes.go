package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/client"
)

const (
	// askTimeout bounds one question to a node.
	askTimeout = 5 * time.Second
	// adminTimeout bounds one to a cluster, which may elect a leader meanwhile.
	adminTimeout = 3 * askTimeout
)

// nodes are those that a verb asks, and who it is to them.
type nodes struct {
	addresses []string      // host:port, of some with a path behind it; at least one
	token     string        // "": none
	tls       *certs.Bundle // nil: they speak no TLS
	context   string        // name of the context that they are of; "": of none
	named     bool          // the user has said where they are, in whatever way
}

// ask asks the nodes that the flags name, within that time, for what may have an effect: of a node that it was
// sent to it may be done, so no other is asked after it.
func (n *nodeFlags) ask(ctx context.Context, within time.Duration, question func(context.Context, *api.Client) error) error {
	to, err := n.reach()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return to.inTurn(ctx, question, func(sent bool, _ error) bool { return !sent })
}

// ask asks the nodes in turn until one answers: a question has no effect. The error says what to do.
func (n nodes) ask(ctx context.Context, question func(context.Context, *api.Client) error) error {
	return n.inTurn(ctx, question, func(sent bool, err error) bool { return !sent || errors.As(err, new(*url.Error)) })
}

// inTurn asks one node after the other, as long as goesOn says so of what came: whether anything was sent, and the
// error.
func (n nodes) inTurn(ctx context.Context, question func(context.Context, *api.Client) error, goesOn func(sent bool, err error) bool) error {
	for i, address := range n.addresses {
		sent, err := n.askOne(ctx, i, question)
		if err == nil || i == len(n.addresses)-1 || ctx.Err() != nil || !goesOn(sent, err) {
			return n.explain(address, err)
		}
	}
	return nil
}

// askOne leaves the nodes after this one their share of the time: a machine that is off does not refuse.
func (n nodes) askOne(ctx context.Context, i int, question func(context.Context, *api.Client) error) (sent bool, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(n.addresses)-i))
		defer cancel()
	}
	var written atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { written.Store(true) }})
	err = question(ctx, n.client(n.addresses[i]))
	return written.Load(), err
}

// client returns one of the node at the address.
func (n nodes) client(address string) *api.Client {
	caller := api.Caller{Token: n.token}
	if n.tls != nil {
		caller.Dial = n.tls.Dial
	}
	return caller.Client(address)
}

// admin asks the nodes that the flags name, as a program of a user's would.
func (n *nodeFlags) admin(ctx context.Context, question func(context.Context, *client.Admin) error) error {
	to, err := n.reach()
	if err != nil {
		return err
	}
	return to.admin(ctx, question)
}

// admin asks the nodes as a program of a user's would: of any of them, and again while a leader is elected.
// The error says what to do.
func (n nodes) admin(ctx context.Context, question func(context.Context, *client.Admin) error) error {
	first, err := n.knock(ctx)
	if err != nil {
		return err
	}
	asked := client.AdminOptions{Timeout: adminTimeout}
	transport := &http.Transport{} // without a proxy: nodes are near
	scheme := "http://"
	if n.tls != nil {
		transport.TLSClientConfig, scheme = n.tls.Caller(), "https://"
	}
	asked.Transport = transport
	if n.token != "" {
		asked.Token = client.StaticToken(n.token)
	}
	urls := make([]string, len(n.addresses))
	for i := range urls {
		urls[i] = scheme + n.addresses[(first+i)%len(urls)]
	}
	admin, err := client.NewAdmin(urls, asked)
	if err != nil {
		return err
	}
	defer admin.Close()
	return n.explain(strings.Join(n.addresses, ","), question(ctx, admin))
}

// knock returns the first of the nodes to which a connection can be made, as an index of addresses. With none it is
// an error: an Admin would try for as long as a cluster takes to elect a leader, and somebody waits who has mistyped
// an address.
func (n nodes) knock(ctx context.Context) (first int, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err = n.ask(ctx, func(ctx context.Context, node *api.Client) error {
		host, _, _ := strings.Cut(node.Address(), "/")
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
		if err != nil {
			return err
		}
		first = slices.Index(n.addresses, node.Address())
		return conn.Close()
	})
	return first, err
}

// explain adds a remedy to the error of a node that gave no answer, or one that this program does not
// understand.
func (n nodes) explain(address string, err error) error {
	var answer *api.Error
	var problem *client.Problem
	var foreign *json.UnmarshalTypeError
	var untrusted *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	var explained *remedyError
	switch {
	case err == nil || errors.As(err, &answer) || errors.As(err, &explained) || errors.Is(err, api.ErrTooLong) || errors.Is(err, api.ErrWantsTLS):
		return err
	case strings.Contains(err.Error(), "tls: certificate required"): // an alert of crypto/tls, which has no type
		err = fmt.Errorf("the node at %s asks callers for a certificate (api.tls.client_ca), name one and its key with --cert-file and --key-file: %w", address, err)
	case strings.Contains(err.Error(), "speaks TLS: write https://"): // of client.Admin
		urls := "https://" + strings.ReplaceAll(address, ",", ",https://")
		err = fmt.Errorf("the node at %s speaks TLS: ask %s, with --ca-file where the system does not trust who signed its certificate", address, urls)
	case errors.As(err, &problem) && !errors.Is(err, client.ErrInDoubt):
		return problem // which names what it is about
	case errors.Is(err, client.ErrInDoubt), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &foreign):
		err = fmt.Errorf("what answers at %s is no node, or one of another version of carillon, use that: %w", address, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired: // or not valid yet, which has no other reason
		c := invalid.Cert
		if time.Now().Before(c.NotBefore) {
			err = fmt.Errorf("the certificate of %s, by which %s is to be known, is valid from %s on only, correct this machine's clock, or wait: %w", c.Subject, address, c.NotBefore.UTC().Format(time.RFC3339), err)
		} else {
			err = fmt.Errorf("the certificate of %s, by which %s is to be known, ended at %s, have it renewed: %w", c.Subject, address, c.NotAfter.UTC().Format(time.RFC3339), err)
		}
	case errors.As(err, &untrusted):
		err = fmt.Errorf("the certificate of what answers at %s is not trusted, name who signed it with --ca-file, and the node by a host that the certificate is issued to: %w", address, err)
	case errors.As(err, &plain):
		err = fmt.Errorf("what answers at %s speaks no TLS, ask it without --ca-file and https: %w", address, err)
	case n.context != "":
		err = fmt.Errorf("no node answers at %s, which is what the context %s says: start one, or name its address with --api, `carillon context use` has another: %w", address, n.context, err)
	default:
		err = fmt.Errorf("no node answers at %s, start one or name its address with --api: %w", address, err)
	}
	return &remedyError{err}
}

// A remedyError says what to do already.
type remedyError struct{ error }

func (e *remedyError) Unwrap() error { return e.error }
