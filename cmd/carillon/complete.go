package main

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/cmd/carillon/internal/contexts"
)

// completionTimeout bounds the wait of somebody who has pressed the tab key.
const completionTimeout = time.Second

// mostCompleted is how many messages are looked at for names to complete.
const mostCompleted = "200"

// complete has the shell offer what f returns for the flag.
func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // there is no such flag, or it has one: a mistake in the program
	}
}

// offered are the words that begin as what was typed. Without an answer there are none: the shell shows no
// errors.
func offered(typed string, words map[string]bool) ([]string, cobra.ShellCompDirective) {
	var fit []string
	for _, word := range slices.Sorted(maps.Keys(words)) {
		if strings.HasPrefix(word, typed) {
			fit = append(fit, word)
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// asked asks within the time of a completion.
func (n *nodeFlags) forCompletion(ctx context.Context, question func(context.Context, *api.Client) error) {
	to, err := n.reach()
	if err != nil {
		return
	}
	if ctx == nil {
		ctx = context.Background() // cobra has none while it completes
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	_ = to.askLeader(ctx, question)
}

// completeTopics offers delay topics: those that routes name, that are paused, and by which the next messages came.
func (n *nodeFlags) completeTopics(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	topics := map[string]bool{}
	n.forCompletion(cmd.Context(), func(ctx context.Context, node *api.Client) error {
		status, err := node.Status(ctx)
		for _, pattern := range status.Routes {
			if !strings.ContainsAny(pattern, "*?[") {
				topics[pattern] = true
			}
		}
		for _, p := range status.Paused {
			if p.Kind == broker.PauseTopic {
				topics[p.Name] = true
			}
		}
		return err
	})
	n.forCompletion(cmd.Context(), func(ctx context.Context, leader *api.Client) error {
		page, err := leader.List(ctx, url.Values{"limit": {mostCompleted}})
		for _, m := range page.Messages {
			topics[m.Topic] = true
		}
		return err
	})
	return offered(typed, topics)
}

// completeTargets offers targets for which messages are pending.
func (n *nodeFlags) completeTargets(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	targets := map[string]bool{}
	n.forCompletion(cmd.Context(), func(ctx context.Context, leader *api.Client) error {
		counted, err := leader.Histogram(ctx, url.Values{"by": {"target"}})
		for _, b := range counted.Buckets {
			targets[b.Target] = true
		}
		return err
	})
	return offered(typed, targets)
}

// completeIDs offers ids that are pending of the topic.
func (m *messageFlags) completeIDs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ids := map[string]bool{}
	if len(args) > 0 || m.topic == "" {
		return offered(typed, ids)
	}
	m.node.forCompletion(cmd.Context(), func(ctx context.Context, leader *api.Client) error {
		page, err := leader.List(ctx, url.Values{"topic": {m.topic}, "prefix": {typed}, "limit": {mostCompleted}})
		for _, found := range page.Messages {
			ids[found.ID] = true
		}
		return err
	})
	return offered(typed, ids)
}

// completeContexts offers the names of contexts.
func completeContexts(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := map[string]bool{}
	if path, err := contexts.Path(); err == nil {
		book, _ := contexts.Read(path)
		for _, c := range book.Contexts {
			names[c.Name] = true
		}
	}
	return offered(typed, names)
}
