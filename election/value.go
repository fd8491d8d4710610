package election

import (
	"encoding/json"
	"fmt"
)

// valueVersion is what this version writes. A reader takes what it knows from a
// later one, so a later one may add fields but not change these.
const valueVersion = 1

// value is what a candidate's key says.
type value struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Address string `json:"address"`
}

func encodeValue(name, address string) (string, error) {
	b, err := json.Marshal(value{Version: valueVersion, Name: name, Address: address})
	if err != nil {
		return "", fmt.Errorf("encode candidate %q: %w", name, err)
	}
	return string(b), nil
}

func decodeValue(b []byte) (value, error) {
	var v value
	if err := json.Unmarshal(b, &v); err != nil {
		return value{}, fmt.Errorf("decode candidate: %w", err)
	}
	if v.Version < 1 || v.Name == "" {
		return value{}, fmt.Errorf("decode candidate: no version or no name in %.200q", b)
	}
	return v, nil
}
