package schemas

import (
	"encoding/json"
	"slices"
	"strings"
)

// definitions are the types of an OpenAPI document by name.
type definitions map[string]map[string]any

// write writes the schema of each type that is a kind of the API.
func (d definitions) write(dir string) error {
	for name, definition := range d {
		var meta struct {
			Kinds []kind `json:"x-kubernetes-group-version-kind"`
		}
		// The document was JSON a moment ago, and is so again.
		content, err := json.Marshal(definition)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(content, &meta); err != nil {
			return err
		}
		if len(meta.Kinds) != 1 {
			continue // a part of others, or DeleteOptions and its like
		}
		if schema, ok := d.strict(definition, []string{name}).(map[string]any); ok {
			if err := meta.Kinds[0].write(dir, schema); err != nil {
				return err
			}
		}
	}
	return nil
}

// strict is a part of an OpenAPI document as JSON Schema, with the types that it
// refers to in it, in which objects admit the fields that they know alone. within
// are the types that it is a part of: one that is a part of itself admits
// anything at the second time.
func (d definitions) strict(part any, within []string) any {
	switch p := part.(type) {
	case []any:
		out := make([]any, len(p))
		for i := range p {
			out[i] = d.strict(p[i], within)
		}
		return out
	case map[string]any:
		if reference, ok := p["$ref"].(string); ok {
			return d.referred(strings.TrimPrefix(reference, "#/definitions/"), within)
		}
		return d.object(p, within)
	}
	return part
}

func (d definitions) referred(name string, within []string) any {
	switch {
	case slices.Contains(within, name):
		return map[string]any{}
	case strings.HasSuffix(name, ".IntOrString"):
		return map[string]any{"type": []any{"string", "integer", "null"}}
	case strings.HasSuffix(name, ".Quantity"):
		return map[string]any{"type": []any{"string", "number", "null"}}
	}
	return d.strict(d[name], append(slices.Clone(within), name))
}

func (d definitions) object(p map[string]any, within []string) map[string]any {
	out := map[string]any{}
	for key, sub := range p {
		switch {
		case strings.HasPrefix(key, "x-"), key == "description", key == "default", key == "format":
			// Nothing that a manifest could break, or nothing of JSON Schema.
		case key == "properties":
			fields, ok := sub.(map[string]any)
			if !ok {
				continue
			}
			properties := map[string]any{}
			for name, field := range fields {
				properties[name] = orNull(d.strict(field, within))
			}
			out[key] = properties
		default:
			out[key] = d.strict(sub, within)
		}
	}
	_, fields := out["properties"]
	_, more := out["additionalProperties"]
	open, _ := p["x-kubernetes-preserve-unknown-fields"].(bool)
	if fields && !more && !open {
		out["additionalProperties"] = false
	}
	if either, _ := p["x-kubernetes-int-or-string"].(bool); either {
		return map[string]any{"type": []any{"string", "integer", "null"}}
	}
	return out
}

// orNull admits null too, which the API takes for an absent field.
func orNull(schema any) any {
	if s, ok := schema.(map[string]any); ok {
		if one, ok := s["type"].(string); ok {
			s["type"] = []any{one, "null"}
		}
		if values, ok := s["enum"].([]any); ok {
			s["enum"] = append(slices.Clone(values), nil)
		}
	}
	return schema
}
