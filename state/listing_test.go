package state

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseList(t *testing.T) {
	value := func(texts ...string) (list []map[string]string) {
		for _, text := range texts {
			list = append(list, map[string]string{ListParam: text})
		}
		return list
	}
	many := "[" + strings.Repeat(`"x",`, 1000) + `"x"]`
	for name, x := range map[string]struct {
		text    string
		most    int
		headers bool
		want    []map[string]string
		err     string
	}{
		"nothing":          {text: ""},
		"blank":            {text: " \n\n"},
		"an empty array":   {text: "[ ]\n"},
		"lines":            {text: "a b\r\n\n  c=[1]\n", want: value("a b", "c=[1]")},
		"texts":            {text: `["a", "b\nc", 7]`, want: value("a", "b\nc", "7")},
		"objects":          {text: `[{"file": "x.csv", "rows": 1e3, "last": true}, {}]`, want: []map[string]string{{"file": "x.csv", "rows": "1e3", "last": "true"}, {}}},
		"too many":         {text: many, err: "the list of shards has 1001 entries; at most 1000 are allowed"},
		"more than max":    {text: "a\nb\n", most: 1, err: "the list of shards has 2 entries; at most 1 are allowed"},
		"no JSON":          {text: `["a", `, err: "the list of shards begins with '[' and is no JSON array: unexpected EOF"},
		"more behind":      {text: `["a"] b`, err: "the list of shards has more behind its JSON array"},
		"an array inside":  {text: `["a", ["b"]]`, err: "the list of shards: entry 1 is no text and no object"},
		"a value":          {text: `[{"a": null}]`, err: `the list of shards: entry 0: "a" is no text, number or truth`},
		"a name":           {text: `[{"a-b": "1"}]`, err: `the list of shards: entry 0 name "a-b" is not allowed`},
		"two names":        {text: `[{"a": "1", "A": "2"}]`, err: "differ in case alone"},
		"names":            {text: `[{` + manyNames(17) + `}]`, err: "the list of shards: entry 0 has 17 entries; at most 16 are allowed"},
		"a null byte":      {text: `["a\u0000"]`, err: "entry 0.value"},
		"not UTF-8":        {text: "a\xff", err: "the list of shards is not UTF-8"},
		"too large":        {text: `["` + strings.Repeat("x", MaxShardParamBytes) + `"]`, err: "its entries have 65541 bytes together; at most 65536 are allowed"},
		"a header's value": {text: `["a\nb"]`, headers: true, err: "entry 0.value contains a control character"},
	} {
		t.Run(name, func(t *testing.T) {
			l := Listing{Max: x.most}
			list, err := l.ParseList([]byte(x.text), x.headers)
			if x.err != "" {
				require.ErrorContains(t, err, x.err)
				return
			}
			require.NoError(t, err)
			if len(x.want) == 0 {
				require.Empty(t, list)
			} else {
				require.Equal(t, x.want, list)
			}
		})
	}
}

func manyNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = `"n` + string(rune('a'+i)) + `": 1`
	}
	return strings.Join(names, ",")
}
