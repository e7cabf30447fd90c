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

// Kubernetes sets variables such as CARILLON_KAFKA_PORT for a service of that name.
var setByKubernetes = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_.*)?)$`)

// unknownVariables refuses variables that begin like a key and are none: a typing
// mistake must not leave a default in force.
func unknownVariables(environ []string) error {
	sections := names(reflect.TypeFor[broker.Config]())
	known := map[string]bool{}
	var all []string
	for _, k := range configKeys() {
		known[k.variable()] = true
		all = append(all, k.variable())
	}
	var problems []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if known[name] || setByKubernetes.MatchString(name) {
			continue
		}
		for _, section := range sections {
			prefix := variablePrefix + strings.ToUpper(section)
			if strings.HasPrefix(name, prefix+"_") {
				problems = append(problems, fmt.Errorf("unknown variable %s%s", name, didYouMean(name, all)))
			}
		}
	}
	return errors.Join(problems...)
}
