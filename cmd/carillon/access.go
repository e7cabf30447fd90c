package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/reload"
)

// watched are the files that a node takes changes of while it runs.
type watched struct {
	log     *slog.Logger
	metrics prometheus.Registerer
	runs    []func(context.Context) error
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

// callers returns who may use the API of the node. Without a token file it is anybody who
// reaches it, which config.Validate lets be on loopback, or where the configuration says so.
func callers(w *watched, c config.API) (api.Callers, error) {
	if c.Tokens == "" {
		return api.Anyone(), nil
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
	if c.AllowUnauthenticated {
		w.log.Warn("who shows no token may do everything: take api.allow_unauthenticated out when all programs show one", tokensKey, c.Tokens)
	}
	return api.Callers{Tokens: keeper.InForce, Anonymous: c.AllowUnauthenticated}, nil
}
