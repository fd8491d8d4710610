package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3" //nolint:depguard // it alone keeps comments
)

// value is one entry of values.yaml.
type value struct {
	path     string // image.tag
	key      string // tag
	section  string // begun in front of it
	text     string // what it is for
	schema   map[string]any
	node     *yaml.Node
	children []*value // of a mapping with keys
}

// parse reads values.yaml with its comments.
func parse(content []byte) (*value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("must be a mapping")
	}
	root := &value{node: document.Content[0]}
	return root, root.descend()
}

// descend reads what is below v.
func (v *value) descend() error {
	var errs []error
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		child := &value{path: key.Value, key: key.Value, node: node}
		if v.path != "" {
			child.path = v.path + "." + key.Value
		}
		if err := child.comment(key.HeadComment); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", child.path, err))
			continue
		}
		// A value that has a description is described as a whole.
		if node.Kind == yaml.MappingNode && len(node.Content) > 0 && child.text == "" {
			if err := child.descend(); err != nil {
				errs = append(errs, err)
			}
		} else if child.text == "" {
			errs = append(errs, fmt.Errorf("%s: no description", child.path))
		}
		v.children = append(v.children, child)
	}
	return errors.Join(errs...)
}

// comment reads the comment in front of a value.
func (v *value) comment(comment string) error {
	var text []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "@section":
			v.section, text = strings.TrimSpace(rest), nil
		case word == "@schema":
			if err := json.Unmarshal([]byte(rest), &v.schema); err != nil {
				return fmt.Errorf("@schema: %w", err)
			}
		case strings.HasPrefix(word, "@"):
			return fmt.Errorf("%s is no annotation; there are @section and @schema", word)
		case word == "--":
			text = []string{rest}
		case text != nil && line != "":
			text = append(text, line)
		}
	}
	v.text = strings.Join(text, " ")
	return nil
}

// leaves calls f with every value that has a row of its own.
func (v *value) leaves(f func(*value)) {
	if v.children == nil {
		f(v)
		return
	}
	for _, child := range v.children {
		child.leaves(f)
	}
}
