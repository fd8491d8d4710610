package etcd

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger makes a zap logger that writes to log, quieter than etcd means it:
// what etcd calls info is of interest only to somebody who looks into etcd, so
// it becomes debug, and debug becomes trace. A message that is repeated appears
// once a second at most. Fatal ends the process, as etcd relies on.
//
// While stopping is set, all becomes debug: etcd reports its own listeners'
// orderly end as errors. It may be nil.
func zapLogger(log hclog.Logger, stopping *atomic.Bool) *zap.Logger {
	core := zapcore.NewSamplerWithOptions(&bridge{log: log, stopping: stopping}, time.Second, 1, 0)
	return zap.New(core, zap.AddStacktrace(zapcore.DPanicLevel))
}

// expected are warnings that tell nobody anything: about what we mean so (one
// listener for a client that speaks gRPC alone, no authentication in the embedded
// member), about what the warning before it said, and about requests that failed,
// which their callers know.
var expected = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"request stats":                    true,
	"retrying of unary invoker failed": true,
}

// bridge is a zapcore.Core on an hclog.Logger.
type bridge struct {
	log      hclog.Logger
	stopping *atomic.Bool
	with     []zapcore.Field
}

func (b *bridge) level(l zapcore.Level) hclog.Level {
	switch {
	case l >= zapcore.InfoLevel && b.stopping != nil && b.stopping.Load():
		return hclog.Debug
	case l >= zapcore.ErrorLevel:
		return hclog.Error
	case l == zapcore.WarnLevel:
		return hclog.Warn
	case l == zapcore.InfoLevel:
		return hclog.Debug
	default:
		return hclog.Trace
	}
}

func (b *bridge) Enabled(l zapcore.Level) bool {
	at := b.log.GetLevel()
	return at == hclog.NoLevel || b.level(l) >= at
}

func (b *bridge) With(fields []zapcore.Field) zapcore.Core {
	with := make([]zapcore.Field, 0, len(b.with)+len(fields))
	return &bridge{log: b.log, stopping: b.stopping, with: append(append(with, b.with...), fields...)}
}

func (b *bridge) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return ce.AddCore(e, b)
	}
	return ce
}

func (b *bridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	args := make([]any, 0, 2*(len(b.with)+len(fields))+2)
	add := func(fields []zapcore.Field) {
		for _, f := range fields {
			f.AddTo(enc)
			if v, ok := enc.Fields[f.Key]; ok {
				args = append(args, f.Key, clip(v))
			}
		}
	}
	add(b.with)
	add(fields)
	if e.Stack != "" {
		args = append(args, "stack", e.Stack)
	}
	at := b.level(e.Level)
	if expected[e.Message] {
		at = hclog.Debug
	}
	b.log.Log(at, e.Message, args...)
	return nil
}

// maxText is how much of a field is logged: etcd puts whole requests into some.
const maxText = 512

func clip(v any) any {
	if text, ok := v.(string); ok && len(text) > maxText {
		return text[:maxText] + "…"
	}
	return v
}

func (b *bridge) Sync() error { return nil }
