package cluster

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
)

// Client runs Kubernetes' and Helm's command lines as one user of a cluster.
type Client struct {
	tools      Tools
	kubeconfig string
	home       string
}

// Env are the variables with which kubectl and helm, found in the folder that
// PATH begins with, mean this cluster, and do not see the settings of who runs the
// tests.
func (c Client) Env() []string {
	return []string{
		"KUBECONFIG=" + c.kubeconfig, "HOME=" + c.home,
		"HELM_CACHE_HOME=" + c.home, "HELM_CONFIG_HOME=" + c.home, "HELM_DATA_HOME=" + c.home,
		"PATH=" + filepath.Join(c.home, "bin") + ":" + os.Getenv("PATH"),
	}
}

// linkPrograms makes the folder that Env's PATH begins with.
func (c Client) linkPrograms(leaderd string) error {
	bin := filepath.Join(c.home, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"kubectl": c.tools.kubernetes(), "helm": c.tools.Program("helm"), "leaderd": leaderd,
	} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}

// Kubectl answers what kubectl says.
func (c Client) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.with(ctx, nil, "kubectl", args...)
}

// Apply creates or changes objects, given as YAML.
func (c Client) Apply(ctx context.Context, manifests string, args ...string) error {
	_, err := c.with(ctx, []byte(manifests), "kubectl", append([]string{"apply", "-f", "-"}, args...)...)
	return err
}

// Get decodes objects into typed, which is of the kind's type or of its list's.
func (c Client) Get(ctx context.Context, typed any, args ...string) error {
	out, err := c.Kubectl(ctx, append(append([]string{"get"}, args...), "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), typed)
}

// Helm answers what Helm says.
func (c Client) Helm(ctx context.Context, args ...string) (string, error) {
	return c.with(ctx, nil, "helm", args...)
}

func (c Client) with(ctx context.Context, input []byte, program string, args ...string) (string, error) {
	path, args := c.tools.command(program, args...)
	return output(ctx, input, c.Env(), path, args...)
}
