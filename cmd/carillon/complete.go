package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/contexts"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

// completionTimeout bounds the wait of somebody who has pressed the tab key.
const completionTimeout = time.Second

// mostCompleted is how many ids are offered.
const mostCompleted = 200

// ofTheShell are characters that a shell takes for its own. Its completion quotes a candidate when it is the only
// one, and then evaluates the line that it stands in: of several, a part could be run as a command.
const ofTheShell = " $`\"'\\;&|<>(){}[]*?!#~"

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
		// Producers choose ids and names. One that could act on the terminal is left out; cut off at a newline it
		// would be another one, too. So is one that would be a flag: --api=HOST has the next completion show that
		// host the token.
		if strings.HasPrefix(word, typed) && !strings.HasPrefix(word, "-") && table.Text(word) == word && !strings.ContainsAny(word, ofTheShell) {
			fit = append(fit, word)
		}
	}
	return fit, cobra.ShellCompDirectiveNoFileComp
}

// forCompletion asks within the time that a completion has.
func (n *nodeFlags) forCompletion(ctx context.Context, question func(context.Context, *client.Admin) error) {
	if ctx == nil {
		ctx = context.Background() // cobra has none while it completes
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	_ = n.admin(ctx, question)
}

// completeTopics offers delay topics that messages are pending of, that are paused, or that routes name.
func (n *nodeFlags) completeTopics(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	topics := map[string]bool{}
	n.forCompletion(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
		told, err := cluster.Topics(ctx)
		for _, place := range told.Places {
			topics[place.Name] = true
		}
		if err != nil {
			return err
		}
		status, err := cluster.Status(ctx)
		for _, pattern := range status.Routes {
			if !strings.ContainsAny(pattern, "*?[") {
				topics[pattern] = true
			}
		}
		return err
	})
	return offered(typed, topics)
}

// completeTargets offers targets that messages are pending for or that are paused.
func (n *nodeFlags) completeTargets(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	targets := map[string]bool{}
	n.forCompletion(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
		told, err := cluster.Targets(ctx)
		for _, place := range told.Places {
			targets[place.Name] = true
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
	m.node.forCompletion(cmd.Context(), func(ctx context.Context, cluster *client.Admin) error {
		for message, err := range cluster.Messages(ctx, client.Filter{Topic: m.topic, Prefix: typed}) {
			if err != nil || len(ids) == mostCompleted {
				return err
			}
			ids[message.ID] = true
		}
		return nil
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
