package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/carillonmq/carillon/broker/config"
)

// loadWith loads with the flags and a file of the given text, if any.
func loadWith(t *testing.T, file string, args ...string) (config.Settings, error) {
	t.Helper()
	keys := config.Keys()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addConfigFlags(flags, keys)
	if file != "" {
		path := filepath.Join(t.TempDir(), "carillon.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return load(flags, keys)
}

func TestSettings_flagWinsOverVariableOverFileOverDefault(t *testing.T) {
	const file = "log: {level: error}"
	check := func(want string, args ...string) {
		t.Helper()
		s, err := loadWith(t, file, args...)
		if err != nil {
			t.Fatal(err)
		}
		if s.Config.Log.Level != want {
			t.Errorf("log.level is %q, want %q", s.Config.Log.Level, want)
		}
	}
	check("error")
	t.Setenv("CARILLON_LOG_LEVEL", "warn")
	check("warn")
	check("debug", "--log.level=debug")
	t.Setenv("CARILLON_LOG_LEVEL", "") // as compose passes on a variable that is not set
	check("error")
	if s, err := loadWith(t, "log: {format: json}"); err != nil || s.Config.Log.Level != "info" || s.Origins["log.level"] != "default" {
		t.Errorf("without any, log.level is %q from %q, %v", s.Config.Log.Level, s.Origins["log.level"], err)
	}
}

func TestSettings_aMistakeInAFlagIsOneOfTheCommandLine(t *testing.T) {
	const text = "soon"
	_, err := loadWith(t, "", "--raft.heartbeat="+text)
	if usage := (*usageError)(nil); !errors.As(err, &usage) {
		t.Errorf("flag: %v is no usage error", err)
	}
	t.Setenv("CARILLON_RAFT_HEARTBEAT", text)
	_, err = loadWith(t, "")
	if usage := (*usageError)(nil); err == nil || errors.As(err, &usage) {
		t.Errorf("variable: %v is a usage error", err)
	}
}
