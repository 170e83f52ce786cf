package registry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZapLogger hands etcd's log lines from warn up to slog; those that are harmless, or come while quiet is set, at debug.
// An entry after which zap would end or unwind the process
// calls fatal instead and blocks its goroutine for ever: one that went on would acknowledge entries that were never
// persisted (D3).
func newZapLogger(logger *slog.Logger, quiet *atomic.Bool, fatal func(reason string)) *zap.Logger {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	options := []zap.Option{zap.ErrorOutput(discard{})}
	if fatal != nil {
		hook := blockForEver{fatal}
		options = append(options, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
	}
	return zap.New(zapCore{logger: logger.With(slog.Any("component", "etcd")), quiet: quiet}, options...)
}

// blockForEver is the hook of entries that must not return.
type blockForEver struct{ fatal func(reason string) }

func (h blockForEver) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	reason := entry.Message
	for _, field := range fields {
		if err, isError := field.Interface.(error); isError && field.Type == zapcore.ErrorType {
			reason += ": " + err.Error()
		}
	}
	h.fatal(reason)
	select {}
}

// harmless lists lines that a start would print although nothing is wrong. A new member has no
// term yet when it first looks for its storage version; it looks again.
var harmless = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"serving client traffic insecurely; this is strongly discouraged!":                     true,
	"Failed to detect schema version":                                                      true,
	"failed to update storage version":                                                     true,
	"simple token is not cryptographically signed":                                         true,
}

// zapCore writes to slog.
type zapCore struct {
	logger *slog.Logger
	quiet  *atomic.Bool
}

func (c zapCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	return zapCore{quiet: c.quiet, logger: slog.New(c.logger.Handler().WithAttrs(slogAttrs(fields)))}
}

func (c zapCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c zapCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelWarn
	switch {
	case harmless[entry.Message], c.quiet.Load():
		level = slog.LevelDebug
	case entry.Level > zapcore.WarnLevel:
		level = slog.LevelError
	}
	record := slog.NewRecord(entry.Time, level, "registry: "+entry.Message, 0)
	record.AddAttrs(slogAttrs(fields)...)
	ctx := context.Background()
	if !c.logger.Handler().Enabled(ctx, level) {
		return nil
	}
	return c.logger.Handler().Handle(ctx, record)
}

func (c zapCore) Sync() error { return nil }

func slogAttrs(fields []zapcore.Field) []slog.Attr {
	encoder := zapcore.NewMapObjectEncoder()
	attrs := make([]slog.Attr, 0, len(fields))
	for _, field := range fields {
		field.AddTo(encoder)
		if value, found := encoder.Fields[field.Key]; found {
			attrs = append(attrs, slog.Any(field.Key, value))
		}
	}
	return attrs
}

// discard is a WriteSyncer for errors of logging itself.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Sync() error                 { return nil }

// failure makes the end of a member a single event.
type failure struct {
	once   sync.Once
	closed chan struct{}
	reason string // readable once closed is
}

func newFailure() *failure { return &failure{closed: make(chan struct{})} }

// set tells whether it was the first one.
func (f *failure) set(reason string) (first bool) {
	f.once.Do(func() {
		f.reason, first = reason, true
		close(f.closed)
	})
	return first
}
