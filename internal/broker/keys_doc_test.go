package broker

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/operate/configuration.md from the tables")

const referenceHead = `# Configuration

This page is made from the tables of the source: change those, then ` + "`go test ./internal/broker -run Reference -rewrite`" + `.

Tidemark has Kafka's keys wherever Kafka has one. Broker keys are given by a properties file (` + "`--config FILE`" + `), the
environment (` + "`TIDEMARK_LOG_RETENTION_MS`" + ` for log.retention.ms) and flags (` + "`--set log.retention.ms=…`" + `), in rising
precedence. Topic keys are given when a topic is created and changed at run time, as are those broker keys that say so:
*per-broker* ones for one broker by its id, *cluster-wide* ones for one broker or as the default of all.

A topic's value is, in this order: what is set for the topic, the broker key named as its fallback, the default.
Keys marked **no effect** are accepted, so that configurations made for Kafka work, and do nothing here.
`

// TestReferenceIsCurrent holds docs/operate/configuration.md against the tables.
func TestReferenceIsCurrent(t *testing.T) {
	all := Keys()
	var page strings.Builder
	page.WriteString(referenceHead)
	page.WriteString("\n## Topics\n\n| key | type | default | values | fallback | meaning |\n|---|---|---|---|---|---|\n")
	for _, key := range all.TopicKeys() {
		if !key.Internal {
			fallback := key.Synonym
			for _, unit := range key.Units {
				fallback += ", " + unit.Name
			}
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s | %s |\n", key.Name, kind(key), byDefault(key), values(key), fallback, meaning(key))
		}
	}
	page.WriteString("\n## Brokers\n\n| key | type | default | values | change | meaning |\n|---|---|---|---|---|---|\n")
	for _, key := range all.BrokerKeys() {
		if !key.Internal {
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s | %s |\n", key.Name, kind(key), byDefault(key), values(key), key.Dynamic, meaning(key))
		}
	}

	path := filepath.Join("..", "..", "docs", "operate", "configuration.md")
	if *rewrite {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page.String() {
		t.Errorf("%s is out of date: run this test with -rewrite", path)
	}
}

func kind(key *meta.ConfigKey) string { return strings.ToLower(key.Type.String()) }

func byDefault(key *meta.ConfigKey) string {
	switch {
	case !key.HasDefault:
		return "none"
	case key.Default == "":
		return "empty"
	}
	return "`" + key.Default + "`"
}

func values(key *meta.ConfigKey) string {
	if key.Valid == nil {
		return ""
	}
	return strings.ReplaceAll(key.Valid.String(), "|", `\|`)
}

func meaning(key *meta.ConfigKey) string {
	text := key.Doc
	if key.NoEffect {
		text += " **No effect.**"
	}
	return text
}
