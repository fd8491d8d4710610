package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// assign sets a field from what a source has for it: text from flags and
// variables, whatever YAML makes of it from a file.
func assign(field reflect.Value, raw any) error {
	value, err := parse(field.Interface(), raw)
	if err != nil {
		return err
	}
	field.Set(reflect.ValueOf(value))
	return nil
}

// parse makes a value of the type of like.
func parse(like, raw any) (any, error) {
	switch like.(type) {
	case string:
		return scalar(raw)
	case Secret:
		s, err := scalar(raw)
		return Secret(s), err
	case []string:
		return list(raw)
	case map[string]string:
		return pairs(raw)
	case map[string]int:
		return amounts(raw)
	}

	text, err := scalar(raw)
	if err != nil {
		return nil, err
	}
	switch like.(type) {
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither true nor false", text)
		}
		return b, nil
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration, such as 500ms, 5s or 2m", text)
		}
		return d, nil
	case Bytes:
		return ParseBytes(text)
	}
	return nil, fmt.Errorf("settings of type %T cannot be read", like)
}

func scalar(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("must be a single value, not %s", shape(raw))
}

func list(raw any) ([]string, error) {
	switch v := raw.(type) {
	case string:
		return split(v), nil
	case []any:
		out := make([]string, 0, len(v))
		for i, item := range v {
			s, err := scalar(item)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			out = append(out, s)
		}
		return out, nil
	}
	return nil, fmt.Errorf("must be a list, not %s", shape(raw))
}

func pairs(raw any) (map[string]string, error) {
	out := map[string]string{}
	switch v := raw.(type) {
	case string:
		for _, item := range split(v) {
			key, value, ok := strings.Cut(item, "=")
			if !ok {
				return nil, fmt.Errorf("%q is not key=value", item)
			}
			out[key] = value
		}
		return out, nil
	case map[string]any:
		for key, item := range v {
			s, err := scalar(item)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = s
		}
		return out, nil
	}
	return nil, fmt.Errorf("must be a mapping, not %s", shape(raw))
}

func amounts(raw any) (map[string]int, error) {
	all, err := pairs(raw)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int, len(all))
	for key, text := range all {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a whole number", key, text)
		}
		out[key] = n
	}
	return out, nil
}

func split(s string) []string {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return slices.DeleteFunc(parts, func(p string) bool { return p == "" })
}

func shape(raw any) string {
	switch raw.(type) {
	case nil:
		return "nothing"
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	case string:
		return "text"
	}
	return fmt.Sprintf("%v", raw)
}
