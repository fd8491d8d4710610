package main

import (
	"bytes"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// roots are the public certificate authorities as one PEM file. Those that are
// trusted under a condition alone (for certificates of before some day) are left
// out, since a file cannot say so.
func roots() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("encode the roots: %w", err)
		}
	}
	return out.Bytes(), nil
}
