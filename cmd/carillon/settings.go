package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/carillonmq/carillon/broker"
)

// settings is the effective configuration with the origin of every key's value.
type settings struct {
	config  broker.Config
	origins map[string]string // by the key's name
}

// addConfigFlags declares a flag for the file and one for each of the keys.
func addConfigFlags(flags *pflag.FlagSet, keys []key) {
	flags.StringP("config", "c", "", "configuration file (or "+variablePrefix+"CONFIG)")
	defaults := broker.DefaultConfig()
	for _, k := range keys {
		flags.Var(&flagValue{text: flowText(k.in(&defaults)), typ: k.typ}, k.name, k.help)
		if k.typ.Kind() == reflect.Bool {
			flags.Lookup(k.name).NoOptDefVal = "true"
		}
	}
}

// A flagValue keeps the text of a flag; load decodes it as it does a variable's.
type flagValue struct {
	text string
	typ  reflect.Type
}

func (v *flagValue) String() string        { return v.text }
func (v *flagValue) Set(text string) error { v.text = text; return nil }

// Type is what the help shows behind the flag's name.
func (v *flagValue) Type() string {
	switch {
	case v.typ == nil, v.typ.Kind() == reflect.Bool:
		return ""
	case v.typ.Kind() == reflect.Slice:
		return "list"
	case strings.HasSuffix(v.typ.Name(), "Duration"):
		return "duration"
	}
	return "string"
}

// load merges flags, environment, file and defaults, in this order of precedence,
// and refuses keys that do not exist. What it returns is resolved, not validated.
func load(flags *pflag.FlagSet, keys []key) (settings, error) {
	path, _ := flags.GetString("config")
	if path == "" {
		path = os.Getenv(variablePrefix + "CONFIG")
	}
	merged := viper.New()
	if path != "" {
		tree, err := readFile(path)
		if err != nil {
			return settings{}, err
		}
		if err := merged.MergeConfigMap(tree); err != nil {
			return settings{}, fmt.Errorf("read configuration %s: %w", path, err)
		}
	}
	if err := unknownVariables(os.Environ()); err != nil {
		return settings{}, err
	}

	s := settings{config: broker.DefaultConfig(), origins: map[string]string{}}
	var problems []error
	for _, k := range keys {
		if err := errors.Join(merged.BindEnv(k.name, k.variable()), merged.BindPFlag(k.name, flags.Lookup(k.name))); err != nil {
			return settings{}, err
		}
		s.origins[k.name] = origin(merged, flags, k, path)
		if s.origins[k.name] == originDefault {
			continue
		}
		if err := decode(k.name, k.in(&s.config), merged.Get(k.name)); err != nil {
			err = fmt.Errorf("%s: %w", s.origins[k.name], err)
			if flags.Changed(k.name) {
				err = &usageError{err}
			}
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return settings{}, errors.Join(problems...)
	}
	s.resolve(keys)
	return s, nil
}

const (
	originDefault = "default"
	originMembers = "cluster.members"
)

// origin names the uppermost layer that has a value for the key.
func origin(merged *viper.Viper, flags *pflag.FlagSet, k key, path string) string {
	switch {
	case flags.Changed(k.name):
		return "flag --" + k.name
	case os.Getenv(k.variable()) != "":
		return "variable " + k.variable()
	case merged.InConfig(k.name):
		return "file " + path
	}
	return originDefault
}

// resolve fills in what follows from other keys and notes that it did.
func (s *settings) resolve(keys []key) {
	resolved := s.config.Resolved()
	for _, k := range keys {
		if !reflect.DeepEqual(k.in(&resolved).Interface(), k.in(&s.config).Interface()) {
			s.origins[k.name] = originMembers
		}
	}
	s.config = resolved
}

// setByKubernetes matches what it sets for the ports of a service called carillon or carillon-kafka, in
// any pod of the namespace:
//
//	CARILLON_SERVICE_HOST=10.0.0.1
//	CARILLON_SERVICE_PORT_API=7401
//	CARILLON_PORT=tcp://10.0.0.1:7401
//	CARILLON_PORT_7401_TCP_ADDR=10.0.0.1
var setByKubernetes = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=|PORT=[a-z]+://|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=)`)

// unknownVariables refuses variables with the program's prefix that are no key: a typing
// mistake must not leave a default in force.
func unknownVariables(environ []string) error {
	known := map[string]bool{variablePrefix + "CONFIG": true}
	var words []string // without the prefix, which would make any two names look alike
	for _, k := range configKeys() {
		known[k.variable()] = true
		words = append(words, strings.TrimPrefix(k.variable(), variablePrefix))
	}
	var problems []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		word, ours := strings.CutPrefix(name, variablePrefix)
		if !ours || known[name] || setByKubernetes.MatchString(entry) {
			continue
		}
		hint := "; every variable that begins with " + variablePrefix + " is a key, see carillon config: unset it"
		if near := nearest(word, words); near != "" {
			hint = "; did you mean " + variablePrefix + near + "?"
		}
		problems = append(problems, fmt.Errorf("unknown variable %s%s", name, hint))
	}
	return errors.Join(problems...)
}
