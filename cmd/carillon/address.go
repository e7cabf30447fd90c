package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/cmd/carillon/internal/contexts"
	"github.com/carillonmq/carillon/cmd/carillon/internal/dev"
)

// apiFlag names the flag that says where nodes answer.
const apiFlag = "api"

// addresses is a flag for some of host:port that also takes URLs of the API, as dev prints them.
type addresses []string

// Set refuses what is no address. Each use of the flag adds to those before.
func (a *addresses) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if _, _, err := parseAddress(one); err != nil {
			return err
		}
		*a = append(*a, one)
	}
	return nil
}

// String returns what Set takes.
func (a *addresses) String() string { return strings.Join(*a, ",") }

// Type is what the help shows behind the flag's name.
func (a *addresses) Type() string { return "addresses" }

// A filledText is a flag for text that refuses to be empty, as by a script whose variable is not set: it would count
// as left out, and another cluster be asked than the one that was meant, or by somebody else.
type filledText string

func (f *filledText) Set(text string) error {
	if text == "" {
		return errors.New("give it a value, or leave it out")
	}
	*f = filledText(text)
	return nil
}

func (f *filledText) String() string { return string(*f) }

// Type is what the help shows behind the flag's name.
func (f *filledText) Type() string { return "string" }

// parseAddress returns host:port of an address or URL, with the path behind it under which the API is, if
// that has one, and whether TLS is spoken there.
func parseAddress(text string) (address string, encrypted bool, err error) {
	wrong := errors.New("write host:port, http://host:port or https://host:port")
	if !strings.Contains(text, "://") {
		if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
			return "", false, wrong
		}
		return text, false, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", false, wrong
	}
	encrypted = u.Scheme == "https"
	address = u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), map[bool]string{false: "80", true: "443"}[encrypted])
	}
	prefix, _, _ := strings.Cut(u.EscapedPath()+"/", "/v1/") // as dev prints it
	return address + strings.TrimRight(prefix, "/"), encrypted, nil
}

// A nodeFlags is how the command line says which nodes a verb asks, and who it is to them.
type nodeFlags struct {
	addresses addresses
	context   string
	files     certs.Paths
	tokenFile string
}

// add declares --api and what goes with it.
func (n *nodeFlags) add(cmd *cobra.Command) {
	n.addReach(cmd.Flags())
	cmd.Flags().Var((*filledText)(&n.context), "context", "`name` of the context to use, whatever the variables "+config.APIVariable+" and "+config.TokenVariable+" say\n"+
		"(default: the variable "+config.ContextVariable+", else the one in use)")
	complete(cmd, "context", completeContexts)
}

// addReach declares what a context keeps.
func (n *nodeFlags) addReach(flags *pflag.FlagSet) {
	flags.Var(&n.addresses, apiFlag, "API `addresses` of nodes, host:port, http://host:port or https://host:port, several with commas\n"+
		"(default: the variable "+config.APIVariable+", else the context in use, else "+dev.API+")")
	flags.Var((*filledText)(&n.tokenFile), "token-file", "`file` with the token to show to nodes (default: the variable "+config.TokenVariable+")")
	flags.Var((*filledText)(&n.files.CA), "ca-file", "PEM `file` of the authorities that sign the nodes' certificates; TLS is spoken then (default with https: the system's)")
	flags.Var((*filledText)(&n.files.Cert), "cert-file", "PEM `file` of the certificate to show to nodes that ask for one")
	flags.Var((*filledText)(&n.files.Key), "key-file", "PEM `file` of the key of --cert-file")
}

// kept returns the context whose nodes are asked, one without a name if it is none. Where addresses are
// given, that is only what --context names: the token of a context in use must not go to other nodes.
func (n *nodeFlags) kept(given bool) (contexts.Context, error) {
	name := n.context
	if name == "" && given {
		return contexts.Context{}, nil
	}
	name = cmp.Or(name, os.Getenv(config.ContextVariable))
	path, err := contexts.Path()
	if err != nil && name == "" {
		return contexts.Context{}, nil // who has no folder has no contexts
	}
	if err != nil {
		return contexts.Context{}, err
	}
	book, err := contexts.Read(path)
	if err != nil {
		return contexts.Context{}, err
	}
	if name = cmp.Or(name, book.Current); name == "" {
		return contexts.Context{}, nil
	}
	return book.Get(name)
}

// variable returns the value of an environment variable that says where nodes are, or who one is there. Where
// --context alone says that, it is "": nodes of one cluster are not asked in the name of another, nor shown
// a token of another.
func (n *nodeFlags) variable(name string) string {
	if n.context != "" && len(n.addresses) == 0 {
		return ""
	}
	return os.Getenv(name)
}

// reach returns the nodes that are asked: flags win over variables, variables over the context in use.
func (n *nodeFlags) reach() (nodes, error) {
	given := n.addresses
	if text := n.variable(config.APIVariable); len(given) == 0 && text != "" {
		if err := given.Set(text); err != nil {
			return nodes{}, fmt.Errorf("%s is %q: %w", config.APIVariable, text, err)
		}
	}
	kept, err := n.kept(len(given) > 0)
	if err != nil {
		return nodes{}, err
	}
	if len(given) == 0 {
		given = kept.API
	}
	to := nodes{context: kept.Name, named: len(given) > 0}
	if len(given) == 0 {
		given = addresses{dev.API}
	}
	var speaksTLS bool
	for i, text := range given {
		address, encrypted, err := parseAddress(text)
		switch {
		case err != nil: // written into the file by hand
			return nodes{}, fmt.Errorf("context %s: api has %q: %w", kept.Name, text, err)
		case i > 0 && encrypted != speaksTLS:
			return nodes{}, &usageError{fmt.Errorf("the API addresses are %s: write https:// before all of them or none", given.String())}
		}
		speaksTLS = encrypted
		to.addresses = append(to.addresses, address)
	}
	files := n.files
	files.CA = cmp.Or(files.CA, kept.CAFile)
	if files.Cert == "" && files.Key == "" {
		files.Cert, files.Key = kept.CertFile, kept.KeyFile
	}
	if to.token, err = n.token(kept); err != nil {
		return to, err
	}
	to.tls, err = speaking(speaksTLS, files)
	return to, err
}

// token returns the token that a verb shows, "" for none: of the file that a flag names, of the variable, or of
// the context's file.
func (n *nodeFlags) token(kept contexts.Context) (string, error) {
	if n.tokenFile != "" {
		return readToken(n.tokenFile)
	}
	if token := strings.TrimSpace(n.variable(config.TokenVariable)); token != "" || kept.TokenFile == "" {
		return token, nil
	}
	return readToken(kept.TokenFile)
}

// speaking returns how a verb speaks TLS, nil: not at all.
func speaking(encrypted bool, files certs.Paths) (*certs.Bundle, error) {
	if !encrypted && files == (certs.Paths{}) {
		return nil, nil
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, &usageError{errors.New("--cert-file and --key-file go together: give both")}
	}
	read, err := files.ReadFiles()
	return &read, err
}

// portInUse names the key that the API's address to listen on comes from.
func portInUse(c config.Config) error {
	if self, _ := c.Self(); c.API.Listen == self.API {
		return &config.FieldError{Field: "cluster.members[" + self.ID + "].api", Value: self.API, Remedy: "free the port or choose another, on all nodes"}
	}
	return &config.FieldError{Field: "api.listen", Value: c.API.Listen, Remedy: "free the port or choose another"}
}
