package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/config"
)

// addConfigFlags declares a flag for the file and one for each of the keys.
func addConfigFlags(flags *pflag.FlagSet, keys []config.Key) {
	flags.VarP(new(filledText), config.FileFlag, "c", "configuration file (or "+config.FileVariable+")")
	for _, k := range keys {
		flags.Var(&flagValue{text: k.Text(config.Default()), kind: k.Kind()}, k.Name, k.Help)
		if k.Kind() == "bool" {
			flags.Lookup(k.Name).NoOptDefVal = "true"
		}
		flags.Lookup(k.Name).Hidden = k.Secret() // which load refuses
	}
}

// A flagValue keeps the text of a flag; config.Load reads it as it does a variable's.
type flagValue struct{ text, kind string }

func (v *flagValue) String() string        { return v.text }
func (v *flagValue) Set(text string) error { v.text = text; return nil }

// Type is what the help shows behind the flag's name.
func (v *flagValue) Type() string {
	if v.kind == "bool" {
		return ""
	}
	return v.kind
}

// load returns the configuration that flags, environment and file make up. A mistake in
// a flag is a usageError.
func load(flags *pflag.FlagSet, keys []config.Key) (config.Settings, error) {
	given := map[string]string{}
	for _, k := range keys {
		if k.Secret() && flags.Changed(k.Name) {
			return config.Settings{}, &usageError{fmt.Errorf("--%s is a secret, and every user of this machine can read the list of processes: give it as the variable %s, or in the configuration file", k.Name, k.Variable())}
		}
	}
	for _, name := range append([]string{config.FileFlag}, names(keys)...) {
		if flag := flags.Lookup(name); flag.Changed {
			given[name] = flag.Value.String()
		}
	}
	s, err := config.Load(keys, config.Layers{Flags: given, Environ: os.Environ()})
	if _, ok := errors.AsType[*config.FlagError](err); ok {
		err = &usageError{err}
	}
	return s, err
}

// keysOf returns the keys whose names begin so.
func keysOf(prefix string) []config.Key {
	var keys []config.Key
	for _, k := range config.Keys() {
		if strings.HasPrefix(k.Name, prefix) {
			keys = append(keys, k)
		}
	}
	return keys
}

func names(keys []config.Key) []string {
	var all []string
	for _, k := range keys {
		all = append(all, k.Name)
	}
	return all
}
