// Package schemas makes the JSON schemas by which kubeconform judges manifests, from
// what Go modules ship: Kubernetes' own OpenAPI document, and the custom resource
// definitions of others. So nothing but the Go module proxy is asked, and every
// version that it has can be tested.
//
// The schemas are strict: a field that the API does not know is an error, as in a
// server-side validation. They say nothing about what only a server checks.
package schemas
