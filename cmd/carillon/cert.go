package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/reload"
)

const (
	authorityFile = "ca" // with .pem and .key behind it
	membersKey    = "cluster.members"

	authorityLasts = "10y"
	nodeLasts      = "1y"
)

func certCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "Make certificates for the nodes of a small cluster",
		Long: "Make certificates for the nodes of a small cluster, where no authority does. `carillon cert init` makes\n" +
			"one, `carillon cert node` has it sign a certificate for each node, for raft.tls and api.tls, and\n" +
			"`carillon cert client` one for a program, where api.tls.client_ca asks for it. Keep the key of the\n" +
			"authority, ca.key, off the nodes: who has it can be any of them.",
		Args: cobra.ArbitraryArgs, // an unknown verb is an argument
		RunE: helpWithoutVerb,
	}
	cmd.AddCommand(certInitCommand(), certNodeCommand(), certClientCommand())
	return cmd
}

func certInitCommand() *cobra.Command {
	var dir, lasts string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make an authority: ca.pem and ca.key",
		Long: "Make an authority that signs the certificates of the nodes: ca.pem, which all of them read, and ca.key,\n" +
			"which signs. What is there already is left as it is.",
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			valid, err := parseLasts(lasts)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			for _, suffix := range []string{".pem", ".key"} {
				if path := filepath.Join(dir, authorityFile+suffix); !errors.Is(lstat(path), fs.ErrNotExist) {
					return fmt.Errorf("%s is there already: nodes trust it, name another folder with --dir for another authority", path)
				}
			}
			pair, err := certs.NewAuthority("Carillon authority", time.Now(), valid)
			if err != nil {
				return err
			}
			return writePair(cmd, dir, authorityFile, pair)
		},
	}
	addCertDir(cmd, &dir)
	cmd.Flags().StringVar(&lasts, "valid-for", authorityLasts, "`duration` for which it signs")
	return cmd
}

// shortestLasts is the least time for which a certificate is made: one that has expired before a node has read it
// would take the place of a good one.
const shortestLasts = time.Minute

// parseLasts reads the value of --valid-for.
func parseLasts(text string) (time.Duration, error) {
	valid, err := config.ParseDuration(text)
	if err != nil {
		return 0, &usageError{fmt.Errorf("--valid-for: %w", err)}
	}
	if valid < shortestLasts {
		return 0, &usageError{&config.FieldError{Field: "--valid-for", Value: text, Remedy: "use 1m or more, or leave it out"}}
	}
	return valid, nil
}

func lstat(path string) error {
	_, err := os.Lstat(path)
	return err
}

func certNodeCommand() *cobra.Command {
	var dir, lasts string
	var hosts []string
	cmd := &cobra.Command{
		Use:   "node ID",
		Short: "Make a certificate for a node: ID.pem and ID.key",
		Long: "Make a certificate and its key for the member of cluster.members with this id, signed by the authority\n" +
			"of `carillon cert init`: ID.pem and ID.key. It is issued to the id, the hosts of its Raft and API\n" +
			"addresses, localhost and 127.0.0.1. Run it again to renew: a node that reads the files takes them while\n" +
			"it runs.",
		Example: "  carillon cert init --dir certs\n" +
			"  carillon cert node n1 --dir certs --config carillon.yaml",
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			valid, err := parseLasts(lasts)
			if err != nil {
				return err
			}
			if args[0] == authorityFile { // its pair would take the place of the authority's
				return fmt.Errorf("%[1]s.pem and %[1]s.key are the authority's: give the member another id in %[2]s", authorityFile, membersKey)
			}
			names, err := namesOf(cmd, args[0])
			if err != nil {
				return err
			}
			ca, err := readAuthority(dir)
			if err != nil {
				return err
			}
			pair, err := ca.Issue(unique(append(names, hosts...)), time.Now(), valid)
			if err != nil {
				return err
			}
			return writePair(cmd, dir, args[0], pair)
		},
	}
	addCertDir(cmd, &dir)
	cmd.Flags().StringVar(&lasts, "valid-for", nodeLasts, "`duration` for which it is valid")
	cmd.Flags().StringSliceVar(&hosts, "hosts", nil, "further `names` and addresses by which programs reach its API")
	addConfigFlags(cmd.Flags(), keysOf(membersKey))
	return cmd
}

// callerName is the form of the name of a program, which is that of a file, too.
var callerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func certClientCommand() *cobra.Command {
	var dir, lasts string
	cmd := &cobra.Command{
		Use:   "client NAME",
		Short: "Make a certificate for a program: NAME.pem and NAME.key",
		Long: "Make a certificate and its key for a program that calls nodes which ask for one (api.tls.client_ca),\n" +
			"signed by the authority of `carillon cert init`. It lets the program connect; what it may do there its\n" +
			"token says. It is nobody's host and no member's id: never give a program the key of a node, whose word\n" +
			"nodes take for who a caller is.",
		Example: "  carillon cert client prometheus --dir certs",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			valid, err := parseLasts(lasts)
			if err != nil {
				return err
			}
			name := args[0]
			if !callerName.MatchString(name) {
				return &usageError{fmt.Errorf("NAME is %q: use 1 to 63 letters, digits, dots, hyphens and underscores, a letter or digit first", name)}
			}
			s, err := load(cmd.Flags(), keysOf(membersKey))
			if err != nil {
				return err
			}
			if name == authorityFile || slices.ContainsFunc(s.Config.Cluster.Members, func(m config.Member) bool { return m.ID == name }) {
				return fmt.Errorf("%[1]s.pem and %[1]s.key are the authority's, or a member's of %[2]s: choose another name", name, membersKey)
			}
			if err := checkNoNodeHas(dir, name); err != nil {
				return err
			}
			ca, err := readAuthority(dir)
			if err != nil {
				return err
			}
			pair, err := ca.IssueCaller(name, time.Now(), valid)
			if err != nil {
				return err
			}
			return writePair(cmd, dir, name, pair)
		},
	}
	addCertDir(cmd, &dir)
	cmd.Flags().StringVar(&lasts, "valid-for", nodeLasts, "`duration` for which it is valid")
	addConfigFlags(cmd.Flags(), keysOf(membersKey))
	return cmd
}

// checkNoNodeHas refuses the name of a pair that is a node's, also of one that the configuration does not name: the
// node would take the program's in its place.
func checkNoNodeHas(dir, name string) error {
	path := filepath.Join(dir, name+".pem")
	text, err := reload.File{Path: path, Optional: true}.Read()
	if err != nil || text == nil {
		return err
	}
	issued, err := certs.NodeNames(path, text)
	if err != nil {
		return fmt.Errorf("%w, or choose another name", err)
	}
	if len(issued) > 0 {
		return fmt.Errorf("%s is issued to %q, as the certificate of a node is: choose another name, or another folder with --dir", path, issued)
	}
	return nil
}

func addCertDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "`folder` of the files")
}

// namesOf returns what the certificate of the member is issued to, its id first.
func namesOf(cmd *cobra.Command, id string) ([]string, error) {
	s, err := load(cmd.Flags(), keysOf(membersKey))
	if err != nil {
		return nil, err
	}
	members := s.Config.Cluster.Members
	i := slices.IndexFunc(members, func(m config.Member) bool { return m.ID == id })
	if i < 0 {
		ids := make([]string, len(members))
		for i, m := range members {
			ids[i] = m.ID
		}
		return nil, fmt.Errorf("%s has no member %q: use one of %s, or name the configuration with --config", membersKey, id, strings.Join(ids, ", "))
	}
	return []string{id, hostOf(members[i].Raft), hostOf(members[i].API), "localhost", "127.0.0.1"}, nil
}

// unique leaves out what stands there before, and what is empty.
func unique(names []string) []string {
	var once []string
	for _, name := range names {
		if name != "" && !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

func readAuthority(dir string) (ca certs.Pair, err error) {
	if ca.Cert, err = (reload.File{Path: filepath.Join(dir, authorityFile+".pem")}).Read(); err != nil {
		return ca, fmt.Errorf("%w: make an authority with `carillon cert init`, or name its folder with --dir", err)
	}
	ca.Key, err = reload.File{Path: filepath.Join(dir, authorityFile+".key"), Secret: true}.Read()
	return ca, err
}

// writePair writes both files, a new key for its owner alone. A key that others may read already is refused:
// the new one would be no secret either.
func writePair(cmd *cobra.Command, dir, name string, pair certs.Pair) error {
	key := reload.File{Path: filepath.Join(dir, name+".key"), Secret: true, Optional: true}
	cert := reload.File{Path: filepath.Join(dir, name+".pem")}
	if _, err := key.Read(); err != nil {
		return err
	}
	if err := key.Write(pair.Key, 0o600); err != nil {
		return err
	}
	if err := cert.Write(pair.Cert, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", cert.Path, key.Path)
	return nil
}
