package schemas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Kubernetes writes the schemas of a version of Kubernetes, such as 1.37.2, to dir.
// It downloads the module of that version where it is missing, some 20 MB. A folder
// that is there already is complete and left alone.
func Kubernetes(ctx context.Context, version, dir string) error {
	return once(dir, func(dir string) error {
		from, err := module(ctx, "k8s.io/kubernetes@v"+version)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(filepath.Join(from, "api", "openapi-spec", "swagger.json"))
		if err != nil {
			return err
		}
		var document struct{ Definitions definitions }
		if err := json.Unmarshal(content, &document); err != nil {
			return fmt.Errorf("parse the OpenAPI document of Kubernetes %s: %w", version, err)
		}
		return document.Definitions.write(dir)
	})
}

// Source is where definitions of custom resources are.
type Source struct {
	// Module with its version.
	Module string
	// Files is a pattern of paths in it.
	Files string
}

// Resources writes the schemas of the custom resources that the sources define to
// dir, as Kubernetes does with its own.
func Resources(ctx context.Context, dir string, sources []Source) error {
	return once(dir, func(dir string) error {
		for _, source := range sources {
			if err := source.write(ctx, dir); err != nil {
				return fmt.Errorf("%s: %w", source.Module, err)
			}
		}
		return nil
	})
}

// Custom are the custom resources of which the chart can make some.
var Custom = []Source{
	{Module: "github.com/prometheus-operator/prometheus-operator@v0.85.0", Files: "example/prometheus-operator-crd/*monitors.yaml"},
	{Module: "github.com/prometheus-operator/prometheus-operator@v0.85.0", Files: "example/prometheus-operator-crd/*prometheusrules.yaml"},
	{Module: "sigs.k8s.io/gateway-api@v1.6.3", Files: "config/crd/standard/*routes.yaml"},
	{Module: "github.com/cert-manager/cert-manager@v1.21.2", Files: "deploy/crds/*certificates.yaml"},
}

// List is where the files are, after a download where they are missing.
func (s Source) List(ctx context.Context) ([]string, error) {
	from, err := module(ctx, s.Module)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(from, s.Files))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: there is no %s", s.Module, s.Files)
	}
	return files, nil
}

func (s Source) write(ctx context.Context, dir string) error {
	files, err := s.List(ctx)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := resources(file, dir); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// once has write fill a folder beside dir, which becomes dir if it succeeds.
func once(dir string, write func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), ".partial-")
	if err != nil {
		return err
	}
	if err := write(partial); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	return os.Rename(partial, dir)
}

// kind names an API.
type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// write stores a kind's schema under the name by which kubeconform looks for it.
func (k kind) write(dir string, schema map[string]any) error {
	apiVersion, suffix := k.Version, "-"+k.Version
	if k.Group != "" {
		apiVersion = k.Group + "/" + k.Version
		first, _, _ := strings.Cut(k.Group, ".")
		suffix = "-" + first + suffix
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return nil // a list of what has a schema of its own
	}
	properties["apiVersion"] = map[string]any{"const": apiVersion}
	properties["kind"] = map[string]any{"const": k.Kind}
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	content, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.ToLower(k.Kind+suffix)+".json"), content, 0o640)
}

// resources writes the schemas of the definitions in one file.
func resources(file, dir string) error {
	content, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return err
	}
	for document := range strings.SplitSeq("\n"+string(content), "\n---") {
		var crd struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
			return err
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, version := range crd.Spec.Versions {
			schema, ok := definitions(nil).strict(version.Schema.OpenAPIV3Schema, nil).(map[string]any)
			if !ok {
				return fmt.Errorf("%s %s has no schema", crd.Spec.Names.Kind, version.Name)
			}
			if properties, ok := schema["properties"].(map[string]any); ok {
				properties["metadata"] = map[string]any{"type": "object"} // checked for the kinds of Kubernetes
			}
			k := kind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			if err := k.write(dir, schema); err != nil {
				return err
			}
		}
	}
	return nil
}
