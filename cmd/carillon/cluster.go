package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/api"
)

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Change the members of a cluster",
		Args:  cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE:  helpWithoutVerb,
	}
	cmd.AddCommand(replaceCommand())
	return cmd
}

func replaceCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:   "replace MEMBER",
		Short: "Take a member that has lost its disk back in",
		Long: "Take a member that has lost its disk back in: stop it, empty its node.data_dir, run this against any\n" +
			"other node, start it. It copies the schedule and votes again once it has caught up; the others serve\n" +
			"meanwhile.",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Several log entries, each of which waits for a majority.
			ctx, cancel := context.WithTimeout(cmd.Context(), 6*askTimeout)
			defer cancel()
			if err := api.NewClient(address).Replace(ctx, args[0]); err != nil {
				return explainAPI(address, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has a new place: start it with an empty node.data_dir, it votes when it has caught up\n", args[0])
			return nil
		},
	}
	addAPIFlag(cmd, &address)
	return cmd
}
