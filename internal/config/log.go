package config

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Formats of the log.
const (
	FormatHuman = "human"
	FormatJSON  = "json"
)

// Log is what the process writes about itself.
type Log struct {
	// Level is trace, debug, info, warn, error or off. Default: info.
	Level string `koanf:"level" usage:"trace, debug, info, warn, error or off"`
	// Format is human, one readable line an entry, or json, one object a line.
	// Default: human.
	Format string `koanf:"format" usage:"human or json"`
}

// Logger makes the logger that l describes; times are UTC.
func (l Log) Logger(w io.Writer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       "leaderd",
		Level:      hclog.LevelFromString(l.Level),
		Output:     w,
		JSONFormat: l.Format == FormatJSON,
		TimeFormat: "2006-01-02T15:04:05.000Z07:00",
		TimeFn:     func() time.Time { return time.Now().UTC() },
	})
}
