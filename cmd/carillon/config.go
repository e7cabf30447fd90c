package main

import (
	"github.com/spf13/cobra"
)

func configCommand() *cobra.Command {
	keys := configKeys()
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value came from",
		Long: "Print the effective configuration as a configuration file, each value with where it came from\n" +
			"as a comment, secrets masked. Fails when a node would not start with it.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := load(cmd.Flags(), keys)
			if err != nil {
				return err
			}
			if err := s.render(cmd.OutOrStdout(), keys); err != nil {
				return err
			}
			return s.config.Validate()
		},
	}
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}
