package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/viper"
)

// Settings are the effective configuration with the origin of every key's value.
type Settings struct {
	Config  Config
	Origins map[string]string // by the key's name
}

// Layers are what may stand above the defaults: flags win over variables, and variables
// over the file.
type Layers struct {
	// Flags has the text of each flag that was given, by the name of its key; that of
	// FileFlag is the path of the file.
	Flags map[string]string
	// Environ is the environment, NAME=value each. A variable that is empty counts as not set.
	Environ []string
}

// variable returns the value of a variable, "" when it is not set.
func (l Layers) variable(name string) string {
	for _, entry := range l.Environ {
		if n, value, _ := strings.Cut(entry, "="); n == name {
			return value
		}
	}
	return ""
}

// A FlagError is what is wrong with a value that a flag gave.
type FlagError struct{ error }

// Unwrap returns the problem itself.
func (e *FlagError) Unwrap() error { return e.error }

// Load merges what the layers have of the keys, the other keys staying at their defaults,
// and refuses keys that do not exist. What it returns is resolved, not validated.
func Load(keys []Key, layers Layers) (Settings, error) {
	path := layers.Flags[FileFlag]
	if path == "" {
		path = layers.variable(FileVariable)
	}
	file := viper.New()
	if path != "" {
		tree, err := readFile(path)
		if err != nil {
			return Settings{}, err
		}
		if err := file.MergeConfigMap(tree); err != nil {
			return Settings{}, fmt.Errorf("read configuration %s: %w", path, err)
		}
	}
	if err := unknownVariables(layers.Environ); err != nil {
		return Settings{}, err
	}

	s := Settings{Config: Default(), Origins: map[string]string{}}
	var problems []error
	for _, k := range keys {
		var value any
		flag, isFlag := layers.Flags[k.Name]
		if isFlag {
			value, s.Origins[k.Name] = flag, "flag --"+k.Name
		} else if variable := layers.variable(k.Variable()); variable != "" {
			value, s.Origins[k.Name] = variable, "variable "+k.Variable()
		} else if file.InConfig(k.Name) {
			value, s.Origins[k.Name] = file.Get(k.Name), "file "+path
		} else {
			s.Origins[k.Name] = OriginDefault
			continue
		}
		if err := decode(k.Name, k.in(&s.Config), value); err != nil {
			err = fmt.Errorf("%s: %w", s.Origins[k.Name], err)
			if isFlag {
				err = &FlagError{err}
			}
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return Settings{}, errors.Join(problems...)
	}
	s.resolve(keys)
	return s, nil
}

const (
	OriginDefault = "default"
	originMembers = "cluster.members"
)

// resolve fills in what follows from other keys and notes that it did.
func (s *Settings) resolve(keys []Key) {
	resolved := s.Config.Resolved()
	for _, k := range keys {
		if !reflect.DeepEqual(k.in(&resolved).Interface(), k.in(&s.Config).Interface()) {
			s.Origins[k.Name] = originMembers
		}
	}
	s.Config = resolved
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
	known := map[string]bool{FileVariable: true, TokenVariable: true, APIVariable: true, ContextVariable: true}
	var words []string // without the prefix, which would make any two names look alike
	for _, k := range Keys() {
		known[k.Variable()] = true
		words = append(words, strings.TrimPrefix(k.Variable(), VariablePrefix))
	}
	var problems []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		word, ours := strings.CutPrefix(name, VariablePrefix)
		if !ours || known[name] || setByKubernetes.MatchString(entry) {
			continue
		}
		hint := "; every variable that begins with " + VariablePrefix + " is a key, see carillon config: unset it"
		if near := nearest(word, words); near != "" {
			hint = "; did you mean " + VariablePrefix + near + "?"
		}
		problems = append(problems, fmt.Errorf("unknown variable %s%s", name, hint))
	}
	return errors.Join(problems...)
}
