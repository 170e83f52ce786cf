package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

type setting struct{ key, value string }

// parseSettings reads key=value arguments. A value may hold "=" and may be empty.
func parseSettings(args []string) ([]setting, error) {
	var out []setting
	for _, arg := range args {
		key, value, found := strings.Cut(arg, "=")
		if !found || strings.TrimSpace(key) == "" {
			return nil, usageError{fmt.Errorf("--set %q: want key=value", arg)}
		}
		out = append(out, setting{strings.TrimSpace(key), strings.TrimSpace(value)})
	}
	return out, nil
}

// parseChanges reads --set and --unset into incremental changes.
func parseChanges(set, unset []string) ([]kadm.AlterConfig, error) {
	settings, err := parseSettings(set)
	if err != nil {
		return nil, err
	}
	var changes []kadm.AlterConfig
	for _, s := range settings {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: s.key, Value: &s.value})
	}
	for _, key := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	return changes, nil
}

// checkKeys refuses changes of keys that the broker does not know.
func checkKeys(known []string, changes []kadm.AlterConfig) error {
	for _, change := range changes {
		if !slices.Contains(known, change.Name) {
			return usageError{fmt.Errorf("unknown key %q%s", change.Name, didYouMean(change.Name, slices.Values(known)))}
		}
	}
	return nil
}

// unknownKeyHint names the setting that the first one of no known name may have been meant to be; empty if there is none.
func unknownKeyHint(settings []setting) string {
	var known []string
	for _, key := range topicKeys() {
		known = append(known, key.Name)
	}
	for _, s := range settings {
		if !slices.Contains(known, s.key) {
			return didYouMean(s.key, slices.Values(known))
		}
	}
	return ""
}

// explained joins what failed, the broker's own message if it gave one, and the name of the code.
func explained(doing string, err error, message string) error {
	var code *kerr.Error
	if errors.As(err, &code) {
		switch {
		case code.Message == "UNKNOWN_TOPIC_OR_PARTITION" && (message == "" || message == code.Description):
			message = "there is no such topic"
		case code.Message == "UNKNOWN_TOPIC_ID" && (message == "" || message == code.Description):
			message = "the topic was deleted meanwhile"
		case message == "":
			message = code.Description
		}
		return fmt.Errorf("%s: %s (%s)", doing, message, code.Message)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func isCode(err error, name string) bool {
	var code *kerr.Error
	return errors.As(err, &code) && code.Message == name
}

// idText is a topic id as Kafka writes it.
func idText(id kadm.TopicID) string { return meta.TopicID(id).String() }
