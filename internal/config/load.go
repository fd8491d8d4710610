package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/leaderd/leaderd/internal/suggest"
)

// Load makes the configuration from the flags that were given (see Register),
// environ (as os.Environ answers it) and the file that either names. It answers
// every mistake it finds, joined, each with the setting's path; the
// configuration is only to be used without error.
func Load(flags *pflag.FlagSet, environ []string) (Config, error) {
	cfg := Default()
	set := variables(environ)
	k := koanf.New(".")

	var errs []error
	if path := configFile(flags, set); path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return cfg, fmt.Errorf("read %s: %w", path, err)
		}
		errs = append(errs, unknownKeys(k.Raw(), "", path)...)
	}
	errs = append(errs, unknownVariables(set)...)
	if err := errors.Join(errs...); err != nil {
		return cfg, err
	}

	// Neither provider fails: both only look things up.
	environment := env.Provider(".", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			s, ok := byEnv(name)
			if !ok || value == "" {
				return "", nil
			}
			return s.path, value
		},
	})
	given := posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		s, ok := byFlag(f.Name)
		if !ok {
			return "", nil
		}
		return s.path, f.Value.String()
	})
	if err := errors.Join(k.Load(environment, nil), k.Load(given, nil)); err != nil {
		return cfg, err
	}

	for _, s := range settings {
		raw := k.Get(s.path)
		if raw == nil {
			continue
		}
		if err := assign(s.value(&cfg), raw); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", s.path, source(s, flags, set), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return cfg, err
	}
	if err := cfg.complete(); err != nil {
		return cfg, err
	}
	return cfg, cfg.Validate()
}

// complete derives what depends on the host and on other settings.
func (c *Config) complete() error {
	host, port, err := net.SplitHostPort(c.Listen)
	wildcard := err == nil && isWildcard(host)
	if c.Name == "" || c.Advertise == "" && wildcard {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name: find the host's name: %w", err)
		}
		if c.Name == "" {
			c.Name = name
		}
		if wildcard && c.Advertise == "" {
			c.Advertise = net.JoinHostPort(name, port)
		}
	}
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	return nil
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func configFile(flags *pflag.FlagSet, set map[string]string) string {
	if f := flags.Lookup(ConfigFlag); f != nil && f.Changed {
		return f.Value.String()
	}
	return set[ConfigEnv]
}

// source tells where a value came from, for the error about it.
func source(s setting, flags *pflag.FlagSet, set map[string]string) string {
	if f := flags.Lookup(s.flag); f != nil && f.Changed {
		return " (flag --" + s.flag + ")"
	}
	if set[s.env] != "" {
		return " (variable " + s.env + ")"
	}
	return ""
}

// variables are the entries of environ that begin with EnvPrefix.
func variables(environ []string) map[string]string {
	out := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, EnvPrefix) {
			out[name] = value
		}
	}
	return out
}

// otherVariables mean something else to leaderd: to its command line, or to the
// commands that it runs, of which leaderd itself may be one.
var otherVariables = []string{
	ConfigEnv, EnvPrefix + "ADDRESS", EnvPrefix + "NAMESPACE",
	EnvPrefix + "JOB", EnvPrefix + "RUN", EnvPrefix + "SLOT", EnvPrefix + "ATTEMPT",
	EnvPrefix + "SHARD", EnvPrefix + "SHARDS", EnvPrefix + "TOKEN",
}

// serviceLink matches what Kubernetes puts into a container's environment for a
// service whose name begins with "leaderd".
var serviceLink = regexp.MustCompile(
	`^LEADERD_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func unknownVariables(set map[string]string) []error {
	var errs []error
	for name := range set {
		if _, ok := byEnv(name); ok || slices.Contains(otherVariables, name) || serviceLink.MatchString(name) {
			continue
		}
		known := []string{ConfigEnv}
		for _, s := range settings {
			known = append(known, s.env)
		}
		errs = append(errs, fmt.Errorf("%s: no such variable%s", name, suggest.Nearest(name, known)))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// unknownKeys walks the file's tree down to the settings.
func unknownKeys(tree map[string]any, prefix, file string) []error {
	var errs []error
	for key, value := range tree {
		path := prefix + key
		if _, ok := byPath[path]; ok {
			continue
		}
		if !sections[path] {
			errs = append(errs, fmt.Errorf("%s: %s: no such setting%s", file, path, meant(prefix, key)))
			continue
		}
		switch sub := value.(type) {
		case nil: // an empty section
		case map[string]any:
			errs = append(errs, unknownKeys(sub, path+".", file)...)
		default:
			errs = append(errs, fmt.Errorf("%s: %s: must have settings below it, not a value", file, path))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// meant suggests the setting of that very name in another section, or else one
// with a similar path.
func meant(prefix, key string) string {
	for _, s := range settings {
		if strings.HasSuffix(s.path, "."+key) && strings.HasPrefix(s.path, prefix) {
			return ", did you mean " + s.path + "?"
		}
	}
	return suggest.Nearest(prefix+key, siblings(prefix))
}

// siblings are candidates for a misspelt key: first of all those beside it, then
// the rest, for one that was put into the wrong section.
func siblings(prefix string) []string {
	var near, far []string
	for path := range sections {
		near = append(near, path)
	}
	for _, s := range settings {
		if strings.HasPrefix(s.path, prefix) {
			near = append(near, s.path)
		} else {
			far = append(far, s.path)
		}
	}
	slices.Sort(near)
	return append(near, far...)
}

func byEnv(name string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.env == name })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

func byFlag(name string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.flag == name })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}
