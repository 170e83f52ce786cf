package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// ConfigChange is the whole configuration of one resource after a change.
type ConfigChange struct {
	Kind   meta.ResourceKind
	Topic  meta.TopicID      // of a topic
	Broker string            // of a broker: its id in decimal, or "" for the default of all
	Values map[string]string // nil when it has none any more
}

// Configs reads all configurations as of one revision.
func (c *Cluster) Configs(ctx context.Context) (configs []ConfigChange, revision int64, err error) {
	revision, err = c.pages(ctx, configPrefix, func(entry Entry) {
		change, err := decodeConfig(Event{Entry: entry})
		if err != nil {
			c.logger.Error("registry value is unreadable and left out", slog.Any("key", entry.Key), slog.Any("err", err))
			return
		}
		configs = append(configs, change)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read configurations: %w", err)
	}
	return configs, revision, nil
}

// WatchConfigs calls handle with every change from the revision on, until ctx ends or handle fails. When it fell too far
// behind it reads everything anew: then full is true, and resources that are not listed have no configuration.
func (c *Cluster) WatchConfigs(ctx context.Context, from int64, handle func(changes []ConfigChange, revision int64, full bool) error) error {
	for {
		err := c.store.Watch(ctx, configPrefix, from, func(changes Changes) error {
			configs := make([]ConfigChange, 0, len(changes.Events))
			for _, event := range changes.Events {
				change, err := decodeConfig(event)
				if err != nil {
					c.logger.Error("registry value is unreadable and left out", slog.Any("key", event.Entry.Key), slog.Any("err", err))
					continue
				}
				configs = append(configs, change)
			}
			return handle(configs, changes.Revision, false)
		})
		if !errors.Is(err, ErrCompacted) {
			return err
		}
		configs, revision, err := c.Configs(ctx)
		if err != nil {
			return err
		}
		if err := handle(configs, revision, true); err != nil {
			return err
		}
		from = revision + 1
	}
}

func decodeConfig(event Event) (ConfigChange, error) {
	var change ConfigChange
	if name, isBroker := strings.CutPrefix(event.Entry.Key, brokerConfigPrefix); isBroker {
		change.Kind = meta.BrokerResource
		if name != defaultBroker {
			if _, err := parseBroker(name); err != nil {
				return change, err
			}
			change.Broker = name
		}
	} else if text, isTopic := strings.CutPrefix(event.Entry.Key, topicConfigPrefix); isTopic {
		change.Kind = meta.TopicResource
		var err error
		if change.Topic, err = meta.ParseTopicID(text); err != nil {
			return change, err
		}
	} else {
		return change, fmt.Errorf("key is none of a topic's or a broker's configuration")
	}
	if event.Deleted {
		return change, nil
	}
	values, err := decode[map[string]string](event.Entry)
	change.Values = values
	return change, err
}

// ConfigEdit changes the configuration of one resource.
type ConfigEdit struct {
	Kind   meta.ResourceKind
	Topic  meta.TopicID
	Broker string

	// Edit returns the new values, given a copy of the present ones that it may change. It may be called again after a
	// conflict. An error leaves the configuration as it is and becomes the edit's result.
	Edit func(values map[string]string) (map[string]string, error)
}

func (e *ConfigEdit) key() string {
	if e.Kind == meta.TopicResource {
		return topicConfigKey(e.Topic)
	}
	return brokerConfigKey(e.Broker)
}

// EditConfigs applies edits, each atomically and independently of the others. It returns one error for each edit, and
// the revision that shows all of them. ErrUnknownTopic: the topic does not exist.
func (c *Cluster) EditConfigs(ctx context.Context, edits []ConfigEdit) (results []error, revision int64, err error) {
	results = make([]error, len(edits))
	for chunk := range slices.Chunk(indexes(len(edits)), nestedMax) {
		r, err := c.editChunk(ctx, edits, chunk, results)
		if err != nil {
			return nil, 0, fmt.Errorf("change configurations: %w", err)
		}
		revision = max(revision, r)
	}
	return results, revision, nil
}

func (c *Cluster) editChunk(ctx context.Context, edits []ConfigEdit, todo []int, results []error) (revision int64, err error) {
	for range conflictRetries {
		read := Txn{}
		for _, i := range todo {
			read.Then = append(read.Then, Get(edits[i].key()))
		}
		current, err := c.store.Txn(ctx, read)
		if err != nil {
			return 0, err
		}
		write, asked := Txn{}, []int(nil)
		for at, i := range todo {
			op, err := editOp(&edits[i], current.Results[at].Entry)
			if err != nil {
				results[i] = err
				continue
			}
			write.Then, asked = append(write.Then, op), append(asked, i)
		}
		if len(asked) == 0 {
			return revision, nil
		}
		written, err := c.store.Txn(ctx, write)
		if err != nil {
			return 0, err
		}
		revision = written.Revision
		todo = todo[:0:0]
		for at, i := range asked {
			nested := written.Results[at].Txn
			switch {
			case nested.Succeeded:
			case edits[i].Kind == meta.TopicResource && nested.Results[0].Entry == nil:
				results[i] = ErrUnknownTopic
			default:
				todo = append(todo, i)
			}
		}
		if len(todo) == 0 {
			return revision, nil
		}
	}
	for _, i := range todo {
		results[i] = ErrConflict
	}
	return revision, nil
}

func editOp(e *ConfigEdit, entry *Entry) (Op, error) {
	key, values, mod := e.key(), map[string]string{}, int64(0)
	if entry != nil {
		var err error
		if values, err = decode[map[string]string](*entry); err != nil {
			return Op{}, err
		}
		mod = entry.Mod
	}
	next, err := e.Edit(maps.Clone(values))
	if err != nil {
		return Op{}, err
	}
	nested := Txn{Conds: []Cond{ModifiedAt(key, mod)}, Else: []Op{Get(key)}}
	if e.Kind == meta.TopicResource {
		nested.Conds = append(nested.Conds, Exists(topicKey(e.Topic)))
		nested.Else = []Op{Get(topicKey(e.Topic))}
	}
	switch {
	case maps.Equal(values, next): // nothing to write, but the topic must exist
	case len(next) == 0:
		nested.Then = []Op{Delete(key)}
	default:
		nested.Then = []Op{Put(key, encode(next))}
	}
	return Nest(nested), nil
}

// indexes is 0, 1, …, n-1.
func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
