// Package static tests what can be told of the Helm chart without a cluster: its
// lint, what its schema and templates refuse, whether Kubernetes' APIs know what it
// renders, whether leaderd takes the configuration, and that no render changes
// unseen: `make golden-chart` writes testdata/golden anew.
package static
