package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// module is the folder with the files of a module's version, which is downloaded
// where it is missing.
func module(ctx context.Context, version string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", version)
	command.Dir = os.TempDir() // outside of any module: the version stands alone
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	var found struct{ Dir, Error string }
	if decode := json.Unmarshal(out, &found); decode == nil && found.Error != "" {
		return "", fmt.Errorf("download %s: %s", version, found.Error)
	}
	if err != nil {
		return "", fmt.Errorf("download %s: %w: %s", version, err, complaints.String())
	}
	return found.Dir, nil
}
