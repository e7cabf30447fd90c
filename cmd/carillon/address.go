package main

import (
	"errors"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/api"
	"github.com/carillonmq/carillon/broker/config"
)

// defaultAPI is where `carillon dev` answers.
const defaultAPI = "127.0.0.1:7401"

// apiFlag names the flag that says where a node answers.
const apiFlag = "api"

// An apiAddress is a flag for host:port that also takes a URL of the API, as dev
// prints it, for the address in it.
type apiAddress struct{ pflag.Value }

// Set refuses URLs of another scheme: nodes speak plain HTTP.
func (a apiAddress) Set(text string) error {
	wrong := errors.New("write host:port or http://host:port")
	if !strings.Contains(text, "://") {
		if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
			return wrong
		}
		return a.Value.Set(text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return wrong
	}
	return a.Value.Set(u.Host)
}

// A nodeFlags is how a verb reaches a node.
type nodeFlags struct {
	address   string
	tokenFile string
}

// add declares --api and what goes with it.
func (n *nodeFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.address, apiFlag, defaultAPI, "API `address` of a node, host:port or http://host:port")
	flag := cmd.Flags().Lookup(apiFlag)
	flag.Value = apiAddress{flag.Value}
	cmd.Flags().StringVar(&n.tokenFile, "token-file", "", "`file` with the token to show to nodes (default: the variable "+config.TokenVariable+")")
}

// caller returns who the verb is to the nodes.
func (n *nodeFlags) caller() (api.Caller, error) {
	token, err := shownToken(n.tokenFile)
	return api.Caller{Token: token}, err
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
