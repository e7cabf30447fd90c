package main

import (
	"errors"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// An apiAddress is a flag for host:port that also takes a URL of the API, as dev
// prints it, for the address in it.
type apiAddress struct{ pflag.Value }

// Set refuses URLs of another scheme: nodes speak plain HTTP.
func (a apiAddress) Set(text string) error {
	if !strings.Contains(text, "://") {
		return a.Value.Set(text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return errors.New("write host:port or http://host:port")
	}
	return a.Value.Set(u.Host)
}

// acceptURL returns the verb with an --api that takes a URL too.
func acceptURL(cmd *cobra.Command) *cobra.Command {
	flag := cmd.Flags().Lookup("api")
	flag.Value = apiAddress{flag.Value}
	return cmd
}
