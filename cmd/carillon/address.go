package main

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/certs"
	"github.com/carillonmq/carillon/broker/config"
)

// defaultAPI is where `carillon dev` answers.
const defaultAPI = "127.0.0.1:7401"

// apiFlag names the flag that says where a node answers.
const apiFlag = "api"

// An apiAddress is a flag for host:port that also takes a URL of the API, as dev
// prints it, for the address in it, and for whether TLS is spoken there.
type apiAddress struct {
	pflag.Value
	tls *bool
}

// Set refuses URLs of another scheme.
func (a apiAddress) Set(text string) error {
	wrong := errors.New("write host:port, http://host:port or https://host:port")
	if !strings.Contains(text, "://") {
		if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
			return wrong
		}
		return a.Value.Set(text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return wrong
	}
	*a.tls = u.Scheme == "https"
	if *a.tls && u.Port() == "" {
		return a.Value.Set(net.JoinHostPort(u.Hostname(), "443"))
	}
	return a.Value.Set(u.Host)
}

// A nodeFlags is how a verb reaches a node.
type nodeFlags struct {
	address   string
	tls       bool // said by the scheme of a URL
	files     certs.Paths
	tokenFile string
}

// add declares --api and what goes with it.
func (n *nodeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&n.address, apiFlag, defaultAPI, "API `address` of a node, host:port, http://host:port or https://host:port")
	flag := flags.Lookup(apiFlag)
	flag.Value = apiAddress{flag.Value, &n.tls}
	flags.StringVar(&n.tokenFile, "token-file", "", "`file` with the token to show to nodes (default: the variable "+config.TokenVariable+")")
	flags.StringVar(&n.files.CA, "ca-file", "", "PEM `file` of the authorities that sign the nodes' certificates; TLS is spoken then (default with https: the system's)")
	flags.StringVar(&n.files.Cert, "cert-file", "", "PEM `file` of the certificate to show to nodes that ask for one")
	flags.StringVar(&n.files.Key, "key-file", "", "PEM `file` of the key of --cert-file")
}

// caller returns who the verb is to the nodes.
func (n *nodeFlags) caller() (api.Caller, error) {
	token, err := shownToken(n.tokenFile)
	if err != nil || !n.tls && n.files == (certs.Paths{}) {
		return api.Caller{Token: token}, err
	}
	if (n.files.Cert == "") != (n.files.Key == "") {
		return api.Caller{}, &usageError{errors.New("--cert-file and --key-file go together: give both")}
	}
	bundle, err := n.files.ReadFiles()
	if err != nil {
		return api.Caller{}, err
	}
	return api.Caller{Token: token, Dial: bundle.Dial}, nil
}

// client returns one of the node at the address.
func (n *nodeFlags) client() (*api.Client, error) {
	caller, err := n.caller()
	return caller.Client(n.address), err
}

// portInUse names the key that the API's address to listen on comes from.
func portInUse(c config.Config) error {
	if self, _ := c.Self(); c.API.Listen == self.API {
		return &config.FieldError{Field: "cluster.members[" + self.ID + "].api", Value: self.API, Remedy: "free the port or choose another, on all nodes"}
	}
	return &config.FieldError{Field: "api.listen", Value: c.API.Listen, Remedy: "free the port or choose another"}
}
