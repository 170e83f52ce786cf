package server

import (
	"log/slog"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// rootLogger is the name of the one logger that a broker has: every line passes its level.
const rootLogger = "root"

// logLevels are Kafka's level names. FATAL and ERROR are one level here, as are TRACE and DEBUG.
var logLevels = map[string]slog.Level{
	"TRACE": slog.LevelDebug, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo,
	"WARN": slog.LevelWarn, "ERROR": slog.LevelError, "FATAL": slog.LevelError,
}

// logger describes the loggers of this broker.
func (d *describer) logger(name string) ([]kmsg.DescribeConfigsResponseResourceConfig, refusedItem) {
	if name == "" {
		return nil, invalidRequest("Broker id must not be empty")
	}
	id, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil:
		return nil, invalidRequest("Broker id must be an integer, but it is: " + name)
	case meta.BrokerID(id) != d.server.config.Broker:
		return nil, invalidRequest("Unexpected broker id, expected " + d.server.config.Broker.String() + " but received " + name)
	}
	key := &meta.ConfigKey{Name: rootLogger}
	entry := d.entry(key, d.server.config.LogLevel.Level().String(), nil)
	entry.Source = kmsg.ConfigSourceDynamicBrokerLoggerConfig
	return []kmsg.DescribeConfigsResponseResourceConfig{entry}, refusedItem{}
}

// alterLogger checks a change of the loggers and makes it, unless it is only to be checked.
func (s *Server) alterLogger(name string, changes []controller.Alteration, validateOnly bool) refusedItem {
	id, err := strconv.ParseInt(name, 10, 32)
	switch {
	case err != nil:
		return invalidRequest("Node id must be an integer, but it is: " + name)
	case meta.BrokerID(id) != s.config.Broker:
		return invalidRequest("Unexpected node id. Expected " + s.config.Broker.String() + ", but received " + name)
	}
	level := s.config.LogLevel.Level()
	for _, change := range changes {
		switch {
		case change.Operation == controller.Append || change.Operation == controller.Subtract:
			return invalidRequest(change.Operation.String() + " operation is not allowed for the BROKER_LOGGER resource")
		case change.Name != rootLogger:
			return invalidConfig("Logger " + change.Name + " does not exist!")
		case change.Operation == controller.Unset:
			return invalidRequest("Removing the log level of the root logger is not allowed")
		case change.Value == nil:
			return invalidRequest("Null value not supported for : " + change.Name)
		}
		wanted, known := logLevels[*change.Value]
		if !known {
			return invalidConfig("Cannot set the log level of " + change.Name + " to " + *change.Value +
				" as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN")
		}
		level = wanted
	}
	if !validateOnly {
		s.config.LogLevel.Set(level)
	}
	return refusedItem{}
}
