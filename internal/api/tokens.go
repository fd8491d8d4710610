package api

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"net/url"
	"strings"

	"github.com/leaderd/leaderd/state"
)

// Etags and page tokens are opaque to clients: their form may change with any
// version, as the first byte tells.
const (
	etagForm  = 1
	tokenForm = 1
)

var opaque = base64.RawURLEncoding.Strict()

// etagOf is a revision as clients see it.
func etagOf(revision int64) string {
	return opaque.EncodeToString(binary.AppendVarint([]byte{etagForm}, revision))
}

// parseEtag is the inverse of etagOf; the empty etag is revision 0.
func parseEtag(v *state.Violations, etag string) int64 {
	if etag == "" {
		return 0
	}
	b, err := opaque.DecodeString(etag)
	if err == nil && len(b) > 1 && b[0] == etagForm {
		if revision, n := binary.Varint(b[1:]); n == len(b)-1 && revision > 0 {
			return revision
		}
	}
	v.Add("etag", "%q is no etag; give back the one that was answered, or none", clip(etag))
	return 0
}

// pageToken names the last item of a page; scope (the method and parent) is
// what it belongs to.
func pageToken(scope string, parts ...string) string {
	b := binary.BigEndian.AppendUint32([]byte{tokenForm}, scopeHash(scope))
	for i, part := range parts {
		if i > 0 {
			b = append(b, '/')
		}
		b = append(b, url.PathEscape(part)...)
	}
	return opaque.EncodeToString(b)
}

// parsePageToken answers the n parts of a token, or nil for the empty one.
func parsePageToken(v *state.Violations, scope, token string, n int) []string {
	if token == "" {
		return nil
	}
	parts, err := openPageToken(scope, token, n)
	if err != nil {
		v.Add("pageToken", "%s", err)
		return nil
	}
	return parts
}

func openPageToken(scope, token string, n int) ([]string, error) {
	b, err := opaque.DecodeString(token)
	if err != nil || len(b) < 5 || b[0] != tokenForm {
		return nil, errors.New("is no page token; give back the one of the page before")
	}
	if binary.BigEndian.Uint32(b[1:]) != scopeHash(scope) {
		return nil, errors.New("belongs to another method or parent; give back the one of the page before")
	}
	parts := strings.Split(string(b[5:]), "/")
	if len(parts) != n {
		return nil, errors.New("is no page token of this method")
	}
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return nil, errors.New("is no page token of this method")
		}
	}
	return parts, nil
}

func scopeHash(scope string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(scope))
	return h.Sum32()
}

// Sizes of pages.
const (
	defaultPage = 100
	maxPage     = 1000
)

// pageSize is the size of a page that a request asks for.
func pageSize(v *state.Violations, asked int32) int {
	switch {
	case asked < 0:
		v.Add("pageSize", "%d is negative; 1–%d, or 0 for %d", asked, maxPage, defaultPage)
		return defaultPage
	case asked == 0:
		return defaultPage
	}
	return min(int(asked), maxPage)
}
