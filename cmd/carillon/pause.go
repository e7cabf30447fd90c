package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func pauseCommand() *cobra.Command {
	var of pausedFlags
	var why string
	cmd := &cobra.Command{
		Use:   "pause (--topic TOPIC | --target TARGET) --why TEXT",
		Short: "Have the messages of a delay topic, or those for a target, wait",
		Long: "Have the messages of a delay topic, or those for a target, wait until carillon resume. Records of a\n" +
			"delay topic are taken in meanwhile, so they can be cancelled there. What was due at that moment is\n" +
			"still delivered. carillon status shows what is paused.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := of.pause()
			if err != nil {
				return err
			}
			if why == "" {
				return &usageError{errors.New("say with --why what it is paused for, for those who find it paused")}
			}
			p.Why, p.Who = why, whoami()
			var change client.PauseChange
			err = of.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				change, err = cluster.Pause(ctx, p)
				return err
			})
			if err != nil {
				return err
			}
			return tellChange(cmd, p, change, "paused")
		},
	}
	of.add(cmd)
	cmd.Flags().StringVar(&why, "why", "", "`text` for those who find it paused")
	return cmd
}

func resumeCommand() *cobra.Command {
	var of pausedFlags
	cmd := &cobra.Command{
		Use:   "resume (--topic TOPIC | --target TARGET)",
		Short: "Deliver what waits since carillon pause",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := of.pause()
			if err != nil {
				return err
			}
			var change client.PauseChange
			err = of.node.admin(cmd.Context(), func(ctx context.Context, cluster *client.Admin) (err error) {
				change, err = cluster.Resume(ctx, p)
				return err
			})
			if err != nil {
				return err
			}
			return tellChange(cmd, p, change, "resumed")
		},
	}
	of.add(cmd)
	return cmd
}

// A pausedFlags says what is to be paused or resumed, and where to ask for it.
type pausedFlags struct {
	node          nodeFlags
	topic, target string
}

func (f *pausedFlags) add(cmd *cobra.Command) {
	f.node.add(cmd)
	cmd.Flags().StringVar(&f.topic, "topic", "", "delay `topic`: what came by it")
	cmd.Flags().StringVar(&f.target, "target", "", "target `topic`: what goes there")
	complete(cmd, "topic", f.node.completeTopics)
	complete(cmd, "target", f.node.completeTargets)
}

func (f *pausedFlags) pause() (client.Pause, error) {
	if (f.topic == "") == (f.target == "") {
		return client.Pause{}, &usageError{errors.New("name either a delay topic with --topic or a target with --target")}
	}
	if f.topic != "" {
		return client.Pause{Kind: client.PauseTopic, Name: f.topic}, nil
	}
	return client.Pause{Kind: client.PauseTarget, Name: f.target}, nil
}

func tellChange(cmd *cobra.Command, p client.Pause, change client.PauseChange, participle string) error {
	if was := change.Was; was != nil {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s is paused already, by %s since %s: %s\nNothing was changed: resume it first to give another reason.\n",
			p.Kind, p.Name, table.Text(was.Who), time.UnixMilli(was.Since).UTC().Format(time.RFC3339), table.Text(was.Why))
		return err
	}
	if !change.Changed {
		already := map[string]string{"paused": "is paused already", "resumed": "is not paused"}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", p.Kind, p.Name, already[participle])
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s is %s\n", p.Kind, p.Name, participle)
	return err
}

// whoami returns the user and the machine that the verb runs on, as far as they are known.
func whoami() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
