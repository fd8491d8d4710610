package cli

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leaderd/leaderd/internal/suggest"
)

// normaliser checks a tree against a message, complains with the path of each
// value that does not fit, and turns what people write into what the canonical
// JSON form wants: durations such as 10m (it knows only seconds), enum values by
// their last part (allow for OVERLAP_ALLOW).
type normaliser struct {
	errs []error
	bad  []string // the paths of what does not fit
}

func (n *normaliser) fail(path, format string, args ...any) any {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	n.errs = append(n.errs, errors.New(text))
	n.bad = append(n.bad, path)
	return nil
}

func (n *normaliser) message(md protoreflect.MessageDescriptor, value any, path string) any {
	switch md.FullName() {
	case "google.protobuf.Duration":
		return n.duration(value, path)
	case "google.protobuf.Timestamp":
		return n.instant(value, path)
	}
	fields := md.Fields()
	switch md.FullName() {
	case httpMessage:
		value = n.bodyText(value, path)
	case deadLetterMessage:
		if value == false {
			return nil
		}
		if value == true {
			return map[string]any{}
		}
	}
	if md.FullName() == paramsMessage {
		value = paramsOf(value)
	}
	if value == nil && fields.Len() == 0 { // noop:
		return map[string]any{}
	}
	object, ok := value.(map[string]any)
	if !ok {
		return n.fail(path, "must have fields, not %s", describe(value))
	}
	out := make(map[string]any, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		fd := fields.ByJSONName(key)
		if fd == nil {
			fd = fields.ByName(protoreflect.Name(key))
		}
		at := join(path, key)
		if fd == nil {
			n.fail(at, "no such field%s", meant(key, names(fields)))
			continue
		}
		if _, twice := out[fd.JSONName()]; twice {
			n.fail(at, "is there twice, in two spellings")
			continue
		}
		if object[key] == nil && (fd.Message() == nil || fd.Message().Fields().Len() > 0 || n.othersOf(fd, object)) {
			continue // not set
		}
		if v := n.field(fd, object[key], at); v != nil {
			out[fd.JSONName()] = v
		}
	}
	return out
}

// othersOf tells whether another field than fd of its oneof has a value. Then an
// empty "noop:" beside a command is none.
func (n *normaliser) othersOf(fd protoreflect.FieldDescriptor, object map[string]any) bool {
	group := fd.ContainingOneof()
	if group == nil {
		return false
	}
	for i := range group.Fields().Len() {
		other := group.Fields().Get(i)
		if other != fd && (object[other.JSONName()] != nil || object[string(other.Name())] != nil) {
			return true
		}
	}
	return false
}

// httpMessage is the target whose body may be given as text in files.
const httpMessage = "leaderd.v1.Http"

// deadLetterMessage may be given as true, for its defaults, and as false, for none.
const deadLetterMessage = "leaderd.v1.DeadLetterPolicy"

// paramsMessage is what a shard is given, which files may say without "values", or as one
// text, which is then the parameter of the name "value".
const paramsMessage = "leaderd.v1.ShardParams"

func paramsOf(value any) any {
	switch v := value.(type) {
	case string:
		return map[string]any{"values": map[string]any{"value": v}}
	case map[string]any:
		if _, whole := v["values"].(map[string]any); !whole {
			return map[string]any{"values": v}
		}
	}
	return value
}

// bodyText makes a body out of bodyText.
func (n *normaliser) bodyText(value any, path string) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for _, key := range []string{"bodyText", "body_text"} {
		text, has := object[key]
		if !has {
			continue
		}
		object = maps.Clone(object)
		delete(object, key)
		s, isText := text.(string)
		switch {
		case text == nil:
		case !isText:
			n.fail(join(path, key), "must be text, not %s: put it in quotes", describe(text))
		case object["body"] != nil:
			n.fail(join(path, key), "stands beside body: give one of them")
		default:
			object["body"] = base64.StdEncoding.EncodeToString([]byte(s))
		}
	}
	return object
}

func (n *normaliser) field(fd protoreflect.FieldDescriptor, value any, path string) any {
	switch {
	case fd.IsMap():
		object, ok := value.(map[string]any)
		if !ok {
			return n.fail(path, "must be a mapping, not %s", describe(value))
		}
		out := make(map[string]any, len(object))
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if v := n.single(fd.MapValue(), object[key], fmt.Sprintf("%s[%s]", path, key)); v != nil {
				out[key] = v
			}
		}
		return out
	case fd.IsList():
		list, ok := value.([]any)
		if !ok {
			return n.fail(path, "must be a list, not %s", describe(value))
		}
		out := make([]any, 0, len(list))
		for i, item := range list {
			if v := n.single(fd, item, fmt.Sprintf("%s[%d]", path, i)); v != nil {
				out = append(out, v)
			} else {
				n.bad = append(n.bad, path) // the places of the others are wrong, too
			}
		}
		return out
	}
	return n.single(fd, value, path)
}

func (n *normaliser) single(fd protoreflect.FieldDescriptor, value any, path string) any {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return n.message(fd.Message(), value, path)
	case protoreflect.EnumKind:
		return n.enum(fd.Enum(), value, path)
	case protoreflect.StringKind:
		if s, ok := value.(string); ok {
			return s
		}
		return n.fail(path, "must be text, not %s: put it in quotes", describe(value))
	case protoreflect.BytesKind:
		s, ok := value.(string)
		if ok {
			_, err := base64.StdEncoding.DecodeString(s)
			ok = err == nil
		}
		if !ok {
			return n.fail(path, "must be base64; text as it is goes into bodyText")
		}
		return s
	case protoreflect.BoolKind:
		if b, ok := value.(bool); ok {
			return b
		}
		return n.fail(path, "must be true or false, not %s", describe(value))
	case protoreflect.DoubleKind:
		if number, ok := value.(json.Number); ok {
			return number
		}
		return n.fail(path, "must be a number, not %s", describe(value))
	case protoreflect.Int32Kind:
		if number, ok := value.(json.Number); ok {
			if i, err := number.Int64(); err == nil && int64(int32(i)) == i {
				return number
			}
		}
		return n.fail(path, "must be a whole number, not %s", describe(value))
	case protoreflect.Int64Kind:
		if number, ok := value.(json.Number); ok {
			if _, err := number.Int64(); err == nil {
				return number
			}
		}
		if s, ok := value.(string); ok { // the canonical form
			if _, err := strconv.ParseInt(s, 10, 64); err == nil {
				return s
			}
		}
		return n.fail(path, "must be a whole number, not %s", describe(value))
	}
	return value
}

func (n *normaliser) duration(value any, path string) any {
	if s, ok := value.(string); ok {
		if d, err := time.ParseDuration(s); err == nil {
			return seconds(d)
		}
	}
	return n.fail(path, "must be a duration such as 500ms, 90s, 10m or 24h, not %s", describe(value))
}

func (n *normaliser) instant(value any, path string) any {
	if s, ok := value.(string); ok {
		if _, err := time.Parse(time.RFC3339Nano, s); err == nil {
			return s
		}
	}
	return n.fail(path, "must be an instant such as 2026-12-01T09:00:00Z or 2026-12-01T09:00:00+01:00, not %s", describe(value))
}

// seconds is a duration in the canonical form, 1.5s, exactly.
func seconds(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign = "-"
	}
	return fmt.Sprintf("%s%d.%09ds", sign, (d / time.Second).Abs(), (d % time.Second).Abs())
}

func (n *normaliser) enum(ed protoreflect.EnumDescriptor, value any, path string) any {
	values := ed.Values()
	// The zero value is X_UNSPECIFIED for an enum X.
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	var allowed []string
	for i := range values.Len() {
		if v := values.Get(i); v.Number() != 0 {
			allowed = append(allowed, strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix)))
		}
	}
	if s, ok := value.(string); ok {
		name := strings.ToUpper(strings.ReplaceAll(s, "-", "_"))
		for _, candidate := range []string{name, prefix + name} {
			if v := values.ByName(protoreflect.Name(candidate)); v != nil {
				return candidate
			}
		}
	}
	return n.fail(path, "must be one of %s, not %s", strings.Join(allowed, ", "), describe(value))
}

// elsewhere has the words that other schedulers have for fields of a job's spec.
var elsewhere = map[string]string{
	"concurrencypolicy":       "overlap",
	"startingdeadlineseconds": "startDeadline",
	"activedeadlineseconds":   "timeout",
	"timezone":                "timeZone",
	"tz":                      "timeZone",
	"schedule":                "schedules",
	"cron":                    "schedules",
	"suspend":                 "",
	"paused":                  "",
	"retries":                 "retry.maxAttempts",
	"backofflimit":            "retry.maxAttempts",
	"maxattempts":             "retry.maxAttempts",
	"retrypolicy":             "retry",
	"deadletters":             "deadLetter",
}

// meant is what somebody may have meant by a field that there is not.
func meant(key string, fields []string) string {
	word := strings.ToLower(strings.ReplaceAll(key, "_", ""))
	field, known := elsewhere[word]
	switch {
	case !known || !slices.Contains(fields, "schedules"): // no spec of a job
		return suggest.Nearest(key, fields)
	case field != "":
		return fmt.Sprintf(", did you mean %s?", field)
	}
	return ": a job is paused with \"leaderd job pause\""
}

func names(fields protoreflect.FieldDescriptors) []string {
	var out []string
	for i := range fields.Len() {
		out = append(out, fields.Get(i).JSONName())
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describe is a value for an error.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "nothing"
	case string:
		return fmt.Sprintf("%q", clip(v))
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return fmt.Sprint(value)
}

func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
