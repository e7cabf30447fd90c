package main

import (
	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/config"
)

func configCommand() *cobra.Command {
	keys := config.Keys()
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration and where each value came from",
		Long: "Print the effective configuration as a configuration file, each value with where it came from\n" +
			"as a comment, secrets masked. Fails when no node would start with it; of the files that it names, such\n" +
			"as certificates and tokens, none is read.\n\n" +
			"A key of the file such as kafka.brokers is a flag, --kafka.brokers, and a variable,\n" +
			"CARILLON_KAFKA_BROKERS. A flag wins over a variable, a variable over the file. Lists of names are\n" +
			"separated by commas, lists of entries are written as in the file, in one line.",
		Example: "  carillon config --config carillon.yaml\n" +
			"  CARILLON_KAFKA_BROKERS=a:9092,b:9092 carillon config --routes '[{from: \"*.delay\", max_delay: 30d}]'",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := load(cmd.Flags(), keys)
			if err != nil {
				return err
			}
			if err := s.Print(cmd.OutOrStdout()); err != nil {
				return err
			}
			return s.Config.Validate()
		},
	}
	addConfigFlags(cmd.Flags(), keys)
	return cmd
}
