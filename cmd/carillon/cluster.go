package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/broker/api"
)

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Change the members of a cluster, or what they write",
		Args:  cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE:  helpWithoutVerb,
	}
	cmd.AddCommand(replaceCommand(), raiseCommand())
	return cmd
}

func replaceCommand() *cobra.Command {
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "replace MEMBER",
		Short: "Take a member that has lost its disk back in",
		Long: "Take a member that has lost its disk back in: stop it, empty its node.data_dir, run this against any\n" +
			"other node, start it. It copies the schedule and votes again once it has caught up; the others serve\n" +
			"meanwhile.",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Several log entries, each of which waits for a majority.
			err := node.ask(cmd.Context(), 6*askTimeout, func(ctx context.Context, asked *api.Client) error { return asked.Replace(ctx, args[0]) })
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has a new place: start it with an empty node.data_dir, it votes when it has caught up\n", args[0])
			return nil
		},
	}
	node.add(cmd)
	return cmd
}

func raiseCommand() *cobra.Command {
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "raise",
		Short: "Let an upgraded cluster write what older programs cannot read",
		Long: "Raise the feature level to the newest that the programs of the nodes understand. Run it when all run\n" +
			"the new program and shall not go back: from then on the program before refuses to run them. It changes\n" +
			"nothing, and names the node, when one does not answer or does not understand the level. When the level\n" +
			"that those who answer understand is in force already, it says so.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level broker.LevelRaise
			err := node.ask(cmd.Context(), 6*askTimeout, func(ctx context.Context, asked *api.Client) (err error) {
				level, err = asked.RaiseLevel(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if len(level.Silent) > 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "feature level %d is in force; %s did not answer: raise again if a newer program runs there\n",
					level.InForce, strings.Join(level.Silent, ", "))
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "feature level %d is in force: programs that do not understand it cannot run these nodes any more\n", level.InForce)
			return nil
		},
	}
	node.add(cmd)
	return cmd
}
