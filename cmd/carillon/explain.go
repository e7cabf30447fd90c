package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker"
)

func explainCommand() *cobra.Command {
	var topic string
	var asJSON bool
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "explain --topic TOPIC ID",
		Short: "Tell what is known of the messages of an id",
		Long: "Ask a node what it knows of an id (feature level 3): the message that waits under it, and what became\n" +
			"of those before it, for as long as that is kept (outcomes.keep). A follower can be a moment behind.",
		Example: "  carillon explain --topic orders.delay reminder-4711",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if topic == "" {
				return &usageError{errors.New("--topic is missing: name the delay topic that the id belongs to")}
			}
			if args[0] == "" {
				return &usageError{errors.New("the id is empty: give the deliver-id of the message")}
			}
			asked, err := node.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
			defer cancel()
			explanation, err := asked.Explain(ctx, topic, args[0])
			if err != nil {
				return explainAPI(node.address, err)
			}
			return printExplanation(cmd.OutOrStdout(), explanation, asJSON)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "delay `topic` that the id belongs to (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	node.add(cmd)
	return cmd
}

// printExplanation writes JSON for programs, or a line for each thing that is known for people.
func printExplanation(w io.Writer, e broker.Explanation, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(e)
	}
	for _, line := range e.Words {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("print explanation: %w", err)
		}
	}
	return nil
}
