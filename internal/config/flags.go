package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/leaderd/leaderd/state"
)

// ConfigFlag and ConfigEnv name the YAML file.
const (
	ConfigFlag = "config"
	ConfigEnv  = EnvPrefix + "CONFIG"
)

// Register adds a flag for every setting, and --config, to flags.
func Register(flags *pflag.FlagSet) {
	flags.String(ConfigFlag, "", "YAML file with settings (env "+ConfigEnv+")")
	defaults := Default()
	for _, s := range settings {
		f := flags.VarPF(&flagValue{kind: s.kind(), shown: show(s.value(&defaults))}, s.flag, "", s.usage)
		if s.typ.Kind() == reflect.Bool {
			f.NoOptDefVal = "true"
		}
	}
}

// flagValue keeps what was written, for Load to parse: flags and environment
// variables are read by the same code, and complain in the same words.
type flagValue struct {
	kind  string
	shown string // the default, for the help text
	text  string
	set   bool
}

func (v *flagValue) Set(text string) error {
	// A list can be given in pieces: --roles control --roles executor.
	if v.set && (v.kind == "list" || strings.HasPrefix(v.kind, "key=value")) {
		text = v.text + "," + text
	}
	v.text, v.set = text, true
	return nil
}

func (v *flagValue) Type() string { return v.kind }

func (v *flagValue) String() string {
	if v.set {
		return v.text
	}
	return v.shown
}

// show spells a value as flags and variables do.
func show(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case []string:
		return strings.Join(x, ",")
	case map[string]string:
		var pairs []string
		for key, value := range x {
			pairs = append(pairs, key+"="+value)
		}
		slices.Sort(pairs)
		return strings.Join(pairs, ",")
	case map[string]int:
		return state.Resources(x).String()
	default:
		return fmt.Sprint(x)
	}
}
