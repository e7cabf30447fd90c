package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/access"
	"github.com/carillonmq/carillon/broker/reload"
	"github.com/carillonmq/carillon/cmd/carillon/internal/table"
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens that let programs use the API",
		Long: "Make, list and revoke the tokens that let programs use the API of the nodes. They act on the file that\n" +
			"api.tokens names, on this machine; a node that reads it takes the change within seconds. The file has\n" +
			"what each token allows and a digest of it, not the token.",
		Args: cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE: helpWithoutVerb,
	}
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenRevokeCommand())
	return cmd
}

func tokenCreateCommand() *cobra.Command {
	var g access.Grant
	var role string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token and print it, once",
		Long: "Make a token for whoever NAME says, and print it: nothing keeps it, so it is printed this once. NAME is\n" +
			"what logs say; two tokens may have the same.\n\n" +
			"A viewer sees status, metrics and what waits, without payloads. An operator changes what waits, too.\n" +
			"An admin changes the cluster, too. Keys, values and headers of messages are shown only to tokens with\n" +
			"--read-payload, whatever the role. --topics and --targets narrow a token to the messages of these delay\n" +
			"topics and for these targets; what acts on the whole cluster needs one that is not narrowed.",
		Example: "  carillon token create anna --role admin --config carillon.yaml\n" +
			"  (umask 077; carillon token create shop --role operator --topics 'orders.*' --api.tokens tokens.yaml > shop.token)",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmpty(cmd.Flags(), "topics", "targets"); err != nil { // it would be for all of them
				return err
			}
			g.Name, g.Role = args[0], access.Role(role)
			if err := checkGrant(g); err != nil {
				return &usageError{err}
			}
			path, err := tokenFile(cmd)
			if err != nil {
				return err
			}
			token, err := access.Create(path, g, time.Now())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
				return fmt.Errorf("print the token: %w: nobody has it, so revoke the last one that `carillon token list` shows of %s, and make another", err, path)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "carillon: this is the token of %s, which is not shown again; its digest is in %s\n", g.Name, path)
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "viewer, operator or admin (required)")
	cmd.Flags().BoolVar(&g.ReadPayload, "read-payload", false, "may see keys, values and headers of messages")
	cmd.Flags().StringSliceVar(&g.Topics, "topics", nil, "`patterns` of delay topics that it is for (default: all)")
	cmd.Flags().StringSliceVar(&g.Targets, "targets", nil, "`patterns` of targets that it is for (default: all)")
	addConfigFlags(cmd.Flags(), keysOf(tokensKey))
	return cmd
}

func checkGrant(g access.Grant) error {
	if err := access.CheckName(g.Name); err != nil {
		return fmt.Errorf("NAME is %q: %w", g.Name, err)
	}
	switch g.Role {
	case access.Viewer, access.Operator, access.Admin:
	default:
		return fmt.Errorf("--role is %q: use viewer, operator or admin", g.Role)
	}
	for flag, patterns := range map[string][]string{"topics": g.Topics, "targets": g.Targets} {
		for _, pattern := range patterns {
			if err := access.CheckPattern(pattern); err != nil {
				return fmt.Errorf("--%s is %q: %w", flag, pattern, err)
			}
		}
	}
	return access.CheckSize(g)
}

func tokenListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the tokens that there are, and what each allows",
		Args:  arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := tokenFile(cmd)
			if err != nil {
				return err
			}
			text, err := reload.File{Path: path}.Read()
			if err != nil {
				return err
			}
			book, err := access.ReadBook(path, text)
			if err != nil {
				return err
			}
			if asJSON {
				return printTokensJSON(cmd.OutOrStdout(), book)
			}
			return printTokens(cmd.OutOrStdout(), book)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	addConfigFlags(cmd.Flags(), keysOf(tokensKey))
	return cmd
}

func printTokens(w io.Writer, b access.Book) error {
	out := table.New(w, "id", "name", "role", "payload", "topics", "targets", "created")
	for _, e := range b.Entries() {
		created, payload := "unknown", "hidden"
		if !e.Created.IsZero() {
			created = e.Created.UTC().Format(time.RFC3339)
		}
		if e.ReadPayload {
			payload = "shown"
		}
		out.Row(e.ID, e.Name, e.Role, payload, allOr(e.Topics), allOr(e.Targets), created)
	}
	return out.Flush()
}

func allOr(patterns []string) string {
	if len(patterns) == 0 {
		return "all"
	}
	return strings.Join(patterns, ",")
}

func printTokensJSON(w io.Writer, b access.Book) error {
	type token struct {
		ID          string      `json:"id"`
		Name        string      `json:"name"`
		Role        access.Role `json:"role"`
		ReadPayload bool        `json:"read_payload"`
		Topics      []string    `json:"topics"` // patterns
		Targets     []string    `json:"targets"`
		Created     *time.Time  `json:"created,omitempty"`
	}
	tokens := []token{}
	for _, e := range b.Entries() {
		t := token{ID: e.ID, Name: e.Name, Role: e.Role, ReadPayload: e.ReadPayload, Topics: e.Topics, Targets: e.Targets}
		if t.Topics == nil {
			t.Topics = []string{"*"}
		}
		if t.Targets == nil {
			t.Targets = []string{"*"}
		}
		if !e.Created.IsZero() {
			t.Created = &e.Created
		}
		tokens = append(tokens, t)
	}
	return printJSON(w, tokens)
}

func tokenRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Take a token away",
		Long: "Take the token with this id away, which `carillon token list` shows: the part behind carillon_. Nodes\n" +
			"that read the file refuse it within seconds.",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := tokenFile(cmd)
			if err != nil {
				return err
			}
			e, err := access.Revoke(path, args[0])
			if errors.Is(err, access.ErrNoToken) {
				return &absentError{err}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s of %s, %s, is revoked in %s\n", e.ID, e.Name, e.Role, path)
			return nil
		},
	}
	addConfigFlags(cmd.Flags(), keysOf(tokensKey))
	return cmd
}

// tokensKey is the key that says where the tokens are.
const tokensKey = "api.tokens"

// tokenFile returns the path of the file that the verb is about.
func tokenFile(cmd *cobra.Command) (string, error) {
	s, err := load(cmd.Flags(), keysOf(tokensKey))
	if err != nil {
		return "", err
	}
	if path := s.Config.API.Tokens; path != "" {
		return path, nil
	}
	return "", errors.New(`api.tokens is "": name the file of the tokens with --api.tokens, or a configuration that does with --config`)
}

// readToken returns the token in the file, to be shown to nodes.
func readToken(path string) (string, error) {
	text, err := reload.File{Path: path, Secret: true}.Read()
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \r\n\t") {
		return "", fmt.Errorf("--token-file: %s does not hold one token: write what `carillon token create` printed into it, and nothing else", path)
	}
	return token, nil
}
