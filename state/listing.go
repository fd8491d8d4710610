package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ListShard is the shard number of the first step of a run that lists its shards. While
// it is at work its record is the run's, as of a run that is one piece of work; it ends
// with the run's verdict, or by becoming the header of what it has listed.
const ListShard = -2

// ListParam is the parameter that an entry of a list is which is a text.
const ListParam = "value"

// Listing has the first step of each run list the run's shards.
type Listing struct {
	// Max is how many it may list; 0: MaxShards.
	Max int
	// Command or HTTP is what it runs; nil both: the job's own target.
	Command *Command
	HTTP    *HTTP
}

// Most is how many shards it may list.
func (l *Listing) Most() int {
	if l.Max == 0 {
		return MaxShards
	}
	return l.Max
}

// Steps of a run that lists its shards, as its work is told them.
const (
	StepList  = "list"
	StepShard = "shard"
)

// check checks what a job says of it.
func (l *Listing) check(v *Violations, of *JobSpec) {
	const field = "spec.shards.dynamic"
	if l.Max < 0 || l.Max > MaxShards {
		v.Add(field+".max", "%d is outside 1–%d", l.Max, MaxShards)
	}
	var own Violations
	switch {
	case l.Command != nil && l.HTTP != nil:
		v.Add(field, "has both command and http; at most one is allowed")
	case l.Command != nil:
		l.Command.validate(&own)
	case l.HTTP != nil:
		l.HTTP.validate(&own)
	case of.NoOp:
		v.Add(field, "needs command or http: the job's own target is noOp, which lists nothing")
	}
	for _, bad := range own { // which are named as the job's own target is
		v.Add(field+bad.Field[len("spec"):], "%s", bad.Description)
	}
}

// errList begins what is wrong with a list.
var errList = errors.New("the list of shards")

// ParseList reads the list that a first step has left: a JSON array of texts and
// objects of texts, numbers and truths, or one text a line. Nothing is an empty list.
// inHeaders tells that the parameters go into the headers of requests. An error says what
// is wrong, and what is allowed.
func (l *Listing) ParseList(text []byte, inHeaders bool) ([]map[string]string, error) {
	text = bytes.TrimSpace(text)
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w is not UTF-8", errList)
	}
	var list []map[string]string
	var err error
	if bytes.HasPrefix(text, []byte("[")) {
		if list, err = listOfJSON(text); err != nil {
			return nil, err
		}
	} else {
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				list = append(list, map[string]string{ListParam: string(line)})
			}
		}
	}
	return list, l.CheckList(list, inHeaders)
}

// CheckList says what in a list is not allowed, and what is; nil: nothing.
func (l *Listing) CheckList(list []map[string]string, inHeaders bool) error {
	if n, most := len(list), l.Most(); n > most {
		return fmt.Errorf("%w has %d entries; at most %d are allowed", errList, n, most)
	}
	var v Violations
	checkShardParams(&v, "its entries", func(i int) string { return "entry " + strconv.Itoa(i) }, list, inHeaders)
	if len(v) == 0 {
		return nil
	}
	text := v[0].Field + " " + v[0].Description
	if n := len(v) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return fmt.Errorf("%w: %s", errList, text)
}

func listOfJSON(text []byte) ([]map[string]string, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var entries []any
	if err := d.Decode(&entries); err != nil {
		return nil, fmt.Errorf("%w begins with '[' and is no JSON array: %w", errList, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w has more behind its JSON array", errList)
	}
	list := make([]map[string]string, len(entries))
	for i, entry := range entries {
		switch e := entry.(type) {
		case string:
			list[i] = map[string]string{ListParam: e}
		case json.Number:
			list[i] = map[string]string{ListParam: e.String()}
		case map[string]any:
			list[i] = make(map[string]string, len(e))
			for _, name := range slices.Sorted(maps.Keys(e)) {
				switch value := e[name].(type) {
				case string:
					list[i][name] = value
				case json.Number:
					list[i][name] = value.String()
				case bool:
					list[i][name] = strconv.FormatBool(value)
				default:
					return nil, fmt.Errorf("%w: entry %d: %q is no text, number or truth", errList, i, clip(name))
				}
			}
		default:
			return nil, fmt.Errorf("%w: entry %d is no text and no object", errList, i)
		}
	}
	return list, nil
}

// checkShardParams checks what shards are given: all is named whole, and each as named
// says.
func checkShardParams(v *Violations, whole string, named func(int) string, list []map[string]string, inHeaders bool) {
	total := 0
	for i, params := range list {
		at := named(i)
		if len(params) > MaxShardParams {
			v.Add(at, "has %d entries; at most %d are allowed", len(params), MaxShardParams)
		}
		seen := make(map[string]string, len(params))
		for _, name := range slices.Sorted(maps.Keys(params)) {
			upper := strings.ToUpper(name)
			if as := seen[upper]; as != "" {
				v.Add(at, "names %q and %q differ in case alone, and would be one variable", clip(as), clip(name))
			}
			seen[upper] = name
			total += len(name) + len(params[name])
			switch {
			case !isEnvName(name):
				v.Add(at, "name %q is not allowed; letters, digits and '_' are, not beginning with a digit", clip(name))
			case len(name) > MaxShardParamName:
				v.Add(at, "name %q has %d bytes; at most %d are allowed", clip(name), len(name), MaxShardParamName)
			}
			checkNoNUL(v, at+"."+clip(name), params[name])
			if inHeaders && strings.ContainsFunc(params[name], unicode.IsControl) {
				v.Add(at+"."+clip(name), "contains a control character, which a request's header cannot hold")
			}
		}
	}
	if total > MaxShardParamBytes {
		v.Add(whole, "have %d bytes together; at most %d are allowed", total, MaxShardParamBytes)
	}
}
