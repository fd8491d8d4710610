package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"go.yaml.in/yaml/v3" //nolint:depguard // it alone keeps comments
)

// document is values.schema.json.
func (v *value) document() ([]byte, error) {
	schema, err := v.object()
	if err != nil {
		return nil, err
	}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// object is the schema of a mapping: these keys and no others, so that a key that
// is misspelt is an error.
func (v *value) object() (map[string]any, error) {
	properties := map[string]any{}
	for _, child := range v.children {
		schema, err := child.one()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", child.path, err)
		}
		properties[child.key] = schema
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}, nil
}

func (v *value) one() (map[string]any, error) {
	if v.children != nil {
		return v.object()
	}
	schema := map[string]any{"description": v.text}
	kind, err := typeOf(v.node)
	if err != nil {
		return nil, err
	}
	if kind != "null" {
		schema["type"] = kind
	}
	maps.Copy(schema, v.schema)
	if kind == "null" && schema["type"] == nil {
		return nil, fmt.Errorf("the default is null: @schema must tell the type")
	}
	return schema, nil
}

// typeOf is the JSON type of a default.
func typeOf(n *yaml.Node) (string, error) {
	switch n.ShortTag() {
	case "!!map":
		return "object", nil
	case "!!seq":
		return "array", nil
	case "!!str":
		return "string", nil
	case "!!int":
		return "integer", nil
	case "!!float":
		return "number", nil
	case "!!bool":
		return "boolean", nil
	case "!!null":
		return "null", nil
	}
	return "", fmt.Errorf("a default of type %s has no JSON type", n.ShortTag())
}
