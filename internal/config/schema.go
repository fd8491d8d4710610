package config

import (
	"reflect"
	"strings"
	"time"
)

// EnvPrefix begins the name of every variable that sets something.
const EnvPrefix = "LEADERD_"

// setting is one leaf of Config, with its spellings.
type setting struct {
	path  string // etcd.dial_timeout
	flag  string // etcd-dial-timeout
	env   string // LEADERD_ETCD_DIAL_TIMEOUT
	usage string
	index []int // of the field, from Config
	typ   reflect.Type
}

// settings are all leaves of Config in order of declaration.
var settings = leaves(reflect.TypeFor[Config](), "", nil)

// byPath finds a setting; sections has the paths that lead to them.
var byPath, sections = indexed(settings)

func leaves(t reflect.Type, prefix string, index []int) []setting {
	var out []setting
	for i := range t.NumField() {
		f := t.Field(i)
		path := prefix + f.Tag.Get("koanf")
		at := append(append([]int(nil), index...), i)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, leaves(f.Type, path+".", at)...)
			continue
		}
		out = append(out, setting{
			path:  path,
			flag:  strings.NewReplacer(".", "-", "_", "-").Replace(path),
			env:   EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_")),
			usage: f.Tag.Get("usage"),
			index: at,
			typ:   f.Type,
		})
	}
	return out
}

func indexed(all []setting) (paths map[string]setting, sections map[string]bool) {
	paths, sections = map[string]setting{}, map[string]bool{}
	for _, s := range all {
		paths[s.path] = s
		for i, c := range s.path {
			if c == '.' {
				sections[s.path[:i]] = true
			}
		}
	}
	return paths, sections
}

func (s setting) value(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(s.index)
}

// kind is what the flag's help calls the value.
func (s setting) kind() string {
	switch s.typ {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Bytes]():
		return "size"
	case reflect.TypeFor[[]string]():
		return "list"
	case reflect.TypeFor[map[string]string]():
		return "key=value,..."
	case reflect.TypeFor[map[string]int]():
		return "key=number,..."
	case reflect.TypeFor[Secret]():
		return "string"
	}
	return s.typ.Kind().String()
}
