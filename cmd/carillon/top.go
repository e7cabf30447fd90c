package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/cmd/carillon/internal/terminal"
	"github.com/carillonmq/carillon/cmd/carillon/internal/top"
)

const (
	usualInterval    = 2 * time.Second
	shortestInterval = 200 * time.Millisecond
	// plainWidth is that of what is printed where there is no terminal.
	plainWidth = 80
)

func topCommand() *cobra.Command {
	var node nodeFlags
	var interval string
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a cluster at work: what is due next, rates, lateness, problems",
		Long: "Show what is due next, how much comes in and goes out and how late, pauses, problems and nodes, again and\n" +
			"again, until q or Ctrl-C. Rates and lateness are those of the leader over the last ten seconds. Without a\n" +
			"terminal, and with --once, it prints lines as they are; programs read carillon status --json and the\n" +
			"metrics.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			every, err := config.ParseDuration(interval)
			if err != nil || every < shortestInterval {
				return &usageError{&config.FieldError{Field: "--interval", Value: interval, Remedy: fmt.Sprintf("write a duration such as 2s, %v or more", shortestInterval)}}
			}
			to, err := node.reach()
			if err != nil {
				return err
			}
			l := &looker{nodes: to}
			switch in, out := cmd.InOrStdin(), cmd.OutOrStdout(); {
			case once:
				return printOnce(cmd.Context(), out, l)
			case terminal.Is(in, out):
				return view(cmd.Context(), in.(*os.File), out.(*os.File), l.looks(every))
			default:
				return printEach(cmd.Context(), out, l, every)
			}
		},
	}
	node.add(cmd)
	cmd.Flags().StringVar(&interval, "interval", usualInterval.String(), "`duration` between two looks at the cluster")
	cmd.Flags().BoolVar(&once, "once", false, "print one screen, for which it looks for a second, and end; exit code 1 when no node answers")
	return cmd
}

// printOnce looks twice, since a rate takes two counts.
func printOnce(ctx context.Context, out io.Writer, l *looker) error {
	state := l.look(ctx)
	if state.Trouble == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		state = l.look(ctx)
	}
	if state.Trouble != "" {
		return errors.New(state.Trouble)
	}
	return printScreen(out, state)
}

// printEach prints each look, with an empty line behind it, until ctx ends.
func printEach(ctx context.Context, out io.Writer, l *looker, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		state := l.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := printScreen(out, state); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printScreen(out io.Writer, state top.State) error {
	if _, err := fmt.Fprintln(out, strings.Join(top.Render(state, plainWidth, 0), "\n")+"\n"); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// Keys that end the view. In the mode of the screen Ctrl-C sends no signal.
const (
	keyQuit  = 'q'
	keyCtrlC = 3
)

// view draws what each look finds, and again when the size of the terminal changes, until ctx ends or a
// key says so. One goroutine draws; others look at the cluster and read keys.
func view(ctx context.Context, in, out *os.File, looks func(context.Context, chan<- top.State)) (err error) {
	screen, err := terminal.Open(in, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, screen.Close()) }() // also when drawing panics
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	states, keys := make(chan top.State), make(chan byte)
	go func() {
		defer screen.CloseOnPanic()
		looks(ctx, states)
	}()
	go func() {
		defer screen.CloseOnPanic()
		readKeys(ctx, in, keys)
	}()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	var state top.State
	for {
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-keys:
			if !ok || key == keyQuit || key == keyCtrlC {
				return nil
			}
			continue
		case <-resized:
			if state.Now.IsZero() {
				continue // there is nothing to draw yet
			}
		case state = <-states:
		}
		width, height := screen.Size()
		if err := screen.Draw(top.Render(state, width, height), width); err != nil {
			return err
		}
	}
}

// readKeys passes keys on until there are no more, and closes the channel then. It waits for a key even when
// ctx has ended: the process ends it.
func readKeys(ctx context.Context, in io.Reader, keys chan<- byte) {
	defer close(keys)
	key := make([]byte, 1)
	for {
		if n, err := in.Read(key); err != nil || n == 0 {
			return
		}
		select {
		case keys <- key[0]:
		case <-ctx.Done():
			return
		}
	}
}
