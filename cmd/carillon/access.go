package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/issuer"
	"github.com/carillonmq/carillon/broker/reload"
)

// watched is what a node takes changes of while it runs: files, and the keys of an issuer.
type watched struct {
	log      *slog.Logger
	metrics  prometheus.Registerer
	runs     []func(context.Context) error
	problems []func() string // for the status; "": none
}

// trouble returns the problems that there are.
func (w *watched) trouble() (all []string) {
	for _, problem := range w.problems {
		if text := problem(); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// watch reads the files and has their changes taken once w runs.
func watch[T any](w *watched, key string, files []reload.File, parse func(texts [][]byte) (T, error)) (*reload.Keeper[T], error) {
	keeper, err := reload.Open(key, files, parse, w.log)
	if err != nil {
		return nil, err
	}
	w.runs = append(w.runs, keeper.Run)
	w.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "carillon_reload_failing",
		Help:        "1 while a file that the key names cannot be used as it is now, and what it said before is in force.",
		ConstLabels: prometheus.Labels{"key": key},
	}, func() float64 {
		if keeper.Failing() {
			return 1
		}
		return 0
	}))
	return keeper, nil
}

// run takes changes until ctx ends.
func (w *watched) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range w.runs {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// An apiEntry is who may use the API of this node, and how: its listener is over's.
type apiEntry struct {
	api.Callers
	peers *certs.Peers // nil: without TLS
}

// apiAccess reads the files that the configuration names for the API.
func apiAccess(w *watched, c config.Config) (apiEntry, error) {
	callers, err := callers(w, c.API)
	if err != nil {
		return apiEntry{}, err
	}
	t := c.API.TLS
	if t.Cert == "" {
		return apiEntry{Callers: callers}, nil
	}
	self, _ := c.Self()
	names := namesAt(c, func(m config.Member) string { return m.API })
	// Alone it shows its certificate to programs only, whose authorities need not be those that it trusts.
	amongNodes := len(c.Cluster.Members) > 1
	keeper, err := watchCerts(w, "api.tls", certs.Paths{Cert: t.Cert, Key: t.Key, CA: t.CA, ClientCA: t.ClientCA}, names[self.API], amongNodes)
	if err != nil {
		return apiEntry{}, err
	}
	if t.Optional {
		w.log.Warn("the API is used without TLS as well, and tokens can be read on the way: take api.tls.optional out when all nodes and programs use TLS")
	}
	peers := certs.NewPeers(certs.Options{Bundle: keeper, Names: names, Optional: t.Optional, Logger: w.log.With("component", "api")})
	callers.Leader.Dial = peers.Dial
	// While TLS is brought in nodes may reach each other without it, and then nobody knows who vouches. They
	// believe who does all the same: of two nodes one takes this step first.
	callers.Leader.Vouches = t.ClientCA != "" && !t.Optional
	callers.Member = peers.IsMember
	return apiEntry{Callers: callers, peers: peers}, nil
}

// over returns the listener, with TLS if there is to be.
func (e apiEntry) over(l net.Listener) net.Listener {
	if e.peers == nil {
		return l
	}
	return e.peers.Over(l)
}

// raftPeers returns how the nodes reach each other for Raft by TLS, nil where the
// configuration names no certificate.
func raftPeers(w *watched, c config.Config) (*certs.Peers, error) {
	t := c.Raft.TLS
	if t.Cert == "" {
		return nil, nil
	}
	self, _ := c.Self()
	names := namesAt(c, func(m config.Member) string { return m.Raft })
	keeper, err := watchCerts(w, "raft.tls", certs.Paths{Cert: t.Cert, Key: t.Key, CA: t.CA, ClientCA: t.CA}, names[self.Raft], true)
	if err != nil {
		return nil, err
	}
	if t.Optional {
		w.log.Warn("peers are taken without TLS as well, and nothing authenticates them: take raft.tls.optional out when all nodes have TLS")
	}
	peers := certs.NewPeers(certs.Options{Bundle: keeper, Names: names, OnlyMembers: true, Optional: t.Optional, Logger: w.log.With("component", "raft")})
	w.runs = append(w.runs, peers.Run)
	return peers, nil
}

// namesAt returns what the certificate of each member may be issued to, by one of its
// addresses: its id, or the host there.
func namesAt(c config.Config, address func(config.Member) string) map[string][]string {
	names := map[string][]string{}
	for _, m := range c.Cluster.Members {
		names[address(m)] = []string{m.ID, hostOf(address(m))}
	}
	return names
}

// hostOf returns the host of an address that config.Validate has let through.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// watchCerts watches certificates, of which this node shows one that is issued to one of
// the names, and tells when they end. What the others would not take of it among nodes is refused, too: once in force
// it would cut this node off, or all of them one after the other.
func watchCerts(w *watched, key string, paths certs.Paths, names []string, amongNodes bool) (*reload.Keeper[certs.Bundle], error) {
	keeper, err := watch(w, key, paths.Files(), func(texts [][]byte) (certs.Bundle, error) {
		bundle, err := paths.Read(texts)
		if err != nil {
			return bundle, err
		}
		if err := bundle.CheckShown(names); err != nil {
			return bundle, fmt.Errorf("%s: %w", paths.Cert, err)
		}
		if amongNodes {
			return bundle, bundle.CheckSigned(paths)
		}
		return bundle, nil
	})
	if err != nil {
		return nil, err
	}
	w.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "carillon_certificate_expiry_timestamp_seconds",
		Help:        "When the first of the certificates ends that this node shows, in seconds since 1970; the key names their file.",
		ConstLabels: prometheus.Labels{"key": key},
	}, func() float64 { return float64(keeper.InForce().Expiry.Unix()) }))
	ending := func() string {
		if problem := keeper.InForce().Ending(paths.Cert, time.Now()); problem != "" {
			return key + ": " + problem
		}
		return ""
	}
	w.problems = append(w.problems, ending)
	w.runs = append(w.runs, func(ctx context.Context) error { return tellWhenItBegins(ctx, ending, w.log) })
	return keeper, nil
}

// tellWhenItBegins logs a problem once, and again when it becomes another, until ctx ends. It returns nil then.
func tellWhenItBegins(ctx context.Context, problem func() string, log *slog.Logger) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	told := ""
	for {
		text := problem()
		if text != "" && text != told {
			log.Warn("certificate ends", "problem", text)
		}
		told = text
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// callers returns who may use the API of the node. Without tokens it is anybody who reaches
// it, which config.Validate lets be on loopback, or where the configuration says so.
func callers(w *watched, c config.API) (api.Callers, error) {
	if !c.Authenticates() {
		return api.Anyone(), nil
	}
	if c.TLS.Cert == "" && !config.IsLoopback(hostOf(c.Listen)) {
		w.log.Warn("tokens can be read on the way: name a certificate for api.tls.cert, unless something else encrypts the network", "api.listen", c.Listen)
	}
	if c.AllowUnauthenticated {
		w.log.Warn("who shows no token may do everything: take api.allow_unauthenticated out when all programs show one", tokensKey, c.Tokens)
	}
	callers := api.Callers{Anonymous: c.AllowUnauthenticated}
	if c.OIDC.Issuer != "" {
		callers.Issued = watchIssuer(w, c.OIDC).Check
	}
	if c.Tokens == "" {
		return callers, nil
	}
	file := reload.File{Path: c.Tokens, Secret: true, Optional: true}
	keeper, err := watch(w, tokensKey, []reload.File{file}, func(texts [][]byte) (access.Book, error) {
		return access.ReadBook(c.Tokens, texts[0])
	})
	if err != nil {
		return api.Callers{}, err
	}
	if len(keeper.InForce().Entries()) == 0 {
		w.log.Warn("nobody has a token: make one with `carillon token create`, it counts within seconds", tokensKey, c.Tokens)
	}
	callers.Tokens = keeper.InForce
	return callers, nil
}

// watchIssuer returns the issuer whose tokens count, whose keys are fetched once w runs.
func watchIssuer(w *watched, c config.OIDC) *issuer.Issuer {
	roles := make([]issuer.Role, len(c.Roles))
	for i, r := range c.Roles {
		roles[i] = issuer.Role{Value: r.Value, Grant: r.Grant()}
	}
	known := issuer.New(issuer.Config{
		URL: c.Issuer, Audience: c.Audience, CA: c.CA, NameClaim: c.NameClaim, RoleClaim: c.RoleClaim, Roles: roles,
	}, w.log)
	w.runs = append(w.runs, known.Run)
	w.problems = append(w.problems, known.Problem)
	w.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_oidc_failing",
		Help: "1 while the keys of api.oidc.issuer cannot be fetched, and those from before count.",
	}, func() float64 {
		if known.Problem() != "" {
			return 1
		}
		return 0
	}))
	return known
}
