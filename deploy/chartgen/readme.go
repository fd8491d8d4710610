package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	begin = "<!-- values -->\n"
	end   = "<!-- /values -->\n"
)

// withTables is the README with the tables of the values.
func withTables(readme []byte, root *value) ([]byte, error) {
	head, rest, ok := bytes.Cut(readme, []byte(begin))
	if !ok {
		return nil, errors.New("the line <!-- values --> is missing")
	}
	_, tail, ok := bytes.Cut(rest, []byte(end))
	if !ok {
		return nil, errors.New("the line <!-- /values --> is missing")
	}
	tables, err := tables(root)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{head, []byte(begin), tables, []byte(end), tail}, nil), nil
}

func tables(root *value) ([]byte, error) {
	var out bytes.Buffer
	var errs []error
	for i, top := range root.children {
		if top.section != "" {
			fmt.Fprintf(&out, "\n### %s\n\n| value | default | meaning |\n|---|---|---|\n", top.section)
		} else if i == 0 {
			return nil, fmt.Errorf("%s: the first value begins no section", top.path)
		}
		top.leaves(func(v *value) {
			literal, err := inline(v)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", v.path, err))
				return
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", v.path, literal, strings.ReplaceAll(v.text, "|", `\|`))
		})
	}
	out.WriteString("\n")
	return out.Bytes(), errors.Join(errs...)
}

// inline writes a default on one line; what is empty needs no words.
func inline(v *value) (string, error) {
	var decoded any
	if err := v.node.Decode(&decoded); err != nil {
		return "", err
	}
	switch d := decoded.(type) {
	case nil:
		return "", nil
	case string:
		if d == "" {
			return "", nil
		}
		return "`" + d + "`", nil
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return "", err
	}
	if s := string(text); s != "[]" && s != "{}" {
		return "`" + s + "`", nil
	}
	return "", nil
}
