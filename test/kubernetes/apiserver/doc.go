// Package apiserver has a real API server judge the chart: what it installs, changes,
// rolls back and removes, and what Pod Security makes of it. No pod runs.
package apiserver
