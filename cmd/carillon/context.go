package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/cmd/carillon/internal/contexts"
	"github.com/carillonmq/carillon/cmd/carillon/internal/dev"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Keep under names how clusters are reached",
		Long: "Keep under names how clusters are reached: addresses of nodes, and the files of a token and of\n" +
			"certificates. Verbs that ask nodes use the context that is in use, or the one that --context or the\n" +
			"variable " + config.ContextVariable + " names. Other flags win over it. The variables " + config.APIVariable + " and\n" +
			config.TokenVariable + " win over the one in use, not over --context. Addresses given by --api or\n" +
			config.APIVariable + " are asked without a context, unless --context names one beside --api: its token is not theirs.",
		Example: "  carillon context add prod --api n1:7401,n2:7401,n3:7401 --token-file ~/.carillon/prod.token --ca-file ca.pem\n" +
			"  carillon context use prod",
		Args: cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE: helpWithoutVerb,
	}
	cmd.AddCommand(contextAddCommand(), contextUseCommand(), contextListCommand(), contextShowCommand(), contextRemoveCommand())
	return cmd
}

func contextAddCommand() *cobra.Command {
	var node nodeFlags
	cmd := &cobra.Command{
		Use:   "add NAME --api ADDRESS[,ADDRESS...]",
		Short: "Add a context; the first one is in use from then on",
		Long: "Add a context. It keeps the path of the token's file, not the token. The first context is in use from\n" +
			"then on. No node is asked.",
		Example: "  carillon context add prod --api https://n1:7401,https://n2:7401 --token-file prod.token --ca-file ca.pem",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(node.addresses) == 0 {
				return &usageError{errors.New("--api is missing: name the nodes of the cluster")}
			}
			if node.tokenFile != "" {
				if _, err := readToken(node.tokenFile); err != nil {
					return err
				}
			}
			if _, err := speaking(false, node.files); err != nil {
				return err
			}
			c := contexts.Context{Name: args[0], API: node.addresses}
			var err error
			for _, file := range []struct{ given, kept *string }{
				{&node.tokenFile, &c.TokenFile}, {&node.files.CA, &c.CAFile}, {&node.files.Cert, &c.CertFile}, {&node.files.Key, &c.KeyFile},
			} {
				if *file.given == "" {
					continue
				}
				if *file.kept, err = filepath.Abs(*file.given); err != nil { // the next verb may run elsewhere
					return err
				}
			}
			return changeContexts(cmd, func(b *contexts.Book, path string) (string, error) {
				if err := b.Add(c); err != nil {
					return "", err
				}
				used := "use it with: carillon context use " + c.Name
				if b.Current == c.Name {
					used = "it is in use"
				}
				return fmt.Sprintf("added %s to %s; %s", c.Name, path, used), nil
			})
		},
	}
	node.addReach(cmd.Flags())
	return cmd
}

func contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Have verbs ask the nodes of this context",
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeContexts(cmd, func(b *contexts.Book, _ string) (string, error) {
				return args[0] + " is in use", b.Use(args[0])
			})
		},
	}
}

func contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a context; files that it names stay",
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeContexts(cmd, func(b *contexts.Book, _ string) (string, error) {
				err := b.Remove(args[0])
				done := args[0] + " is removed"
				if b.Current == "" {
					done += "; none is in use now"
				}
				return done, err
			})
		},
	}
}

// changeContexts changes the contexts, and says what was done once they are written. A name that is none is a
// mistake in the command line.
func changeContexts(cmd *cobra.Command, change func(b *contexts.Book, path string) (done string, err error)) error {
	path, err := contexts.Path()
	if err != nil {
		return err
	}
	var done string
	err = contexts.Change(path, func(b *contexts.Book) (err error) {
		done, err = change(b, path)
		return err
	})
	if errors.Is(err, contexts.ErrName) {
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), done)
	return nil
}

func readContexts() (path string, book contexts.Book, err error) {
	if path, err = contexts.Path(); err != nil {
		return "", contexts.Book{}, err
	}
	book, err = contexts.Read(path)
	return path, book, err
}

func contextListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the contexts; a star marks the one in use",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, book, err := readContexts()
			if err != nil {
				return err
			}
			if asJSON {
				return printContextsJSON(cmd.OutOrStdout(), book)
			}
			if len(book.Contexts) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "no contexts in %s: carillon context add makes one\n", path)
				return nil
			}
			out := table.New(cmd.OutOrStdout(), "", "name", "api", "token file")
			for _, c := range book.Contexts {
				mark := ""
				if c.Name == book.Current {
					mark = "*"
				}
				out.Row(mark, c.Name, strings.Join(c.API, ","), orNone(c.TokenFile))
			}
			return out.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

func printContextsJSON(w io.Writer, b contexts.Book) error {
	type one struct {
		contexts.Context
		InUse bool `json:"in_use"`
	}
	all := []one{}
	for _, c := range b.Contexts {
		all = append(all, one{c, c.Name == b.Current})
	}
	return printJSON(w, all)
}

func contextShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show a context, by default the one in use",
		Args:              arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, book, err := readContexts()
			if err != nil {
				return err
			}
			name := cmp.Or(append(args, os.Getenv(config.ContextVariable), book.Current)...)
			if name == "" {
				return &absentError{errors.New("no context is in use: name one, or run `carillon context use`; without any, verbs ask " + dev.API)}
			}
			c, err := book.Get(name)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), c)
			}
			out := table.New(cmd.OutOrStdout())
			out.Row("name", c.Name)
			out.Row("api", strings.Join(c.API, ","))
			out.Row("token file", orNone(c.TokenFile))
			files := certs.Paths{CA: c.CAFile, Cert: c.CertFile, Key: c.KeyFile}
			if files != (certs.Paths{}) {
				out.Row("ca file", orNone(files.CA))
				out.Row("cert file", orNone(files.Cert))
				out.Row("key file", orNone(files.Key))
			}
			return out.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}
