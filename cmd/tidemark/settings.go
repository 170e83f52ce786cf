package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/server"
)

// envPrefix starts the environment variables that are settings: TIDEMARK_LOG_RETENTION_MS is log.retention.ms.
const envPrefix = "TIDEMARK_"

// serviceLink matches the variables that Kubernetes and Docker give every container beside a service called "tidemark":
// they are addresses, no settings.
var serviceLink = regexp.MustCompile(`^TIDEMARK_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// sources are the three places that a setting can come from, in rising precedence.
type sources struct {
	file     []property
	fileName string
	env      []string  // as os.Environ gives them
	flags    []setting // --set key=value
}

// resolved is what the sources say together.
type resolved struct {
	values   map[string]string // canonical values by key
	noEffect []string          // keys that were set and do nothing here, sorted
}

// resolve joins the sources and checks every key and value against the table of broker keys. The error names the key, where it stands
// and what would be right.
func resolve(from sources, table []*meta.ConfigKey) (resolved, error) {
	keys := make(map[string]*meta.ConfigKey, len(table))
	byEnv := make(map[string]string, len(table))
	for _, key := range table {
		keys[key.Name] = key
		byEnv[envName(key.Name)] = key.Name
	}
	out := resolved{values: map[string]string{}}
	useless := map[string]bool{}
	put := func(name, value, where string) error {
		key, known := keys[baseKey(name)]
		if !known {
			return usageError{fmt.Errorf("%s: unknown key %q%s", where, name, didYouMean(name, maps.Keys(keys)))}
		}
		canonical, err := key.Parse(value)
		if err != nil {
			return usageError{fmt.Errorf("%s: %w", where, err)}
		}
		out.values[name] = canonical
		if key.NoEffect {
			useless[name] = true
		}
		return nil
	}
	for _, p := range from.file {
		if err := put(p.key, p.value, fmt.Sprintf("%s line %d", from.fileName, p.line)); err != nil {
			return resolved{}, err
		}
	}
	for _, variable := range from.env {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		key, known := byEnv[name]
		if !known {
			key, known = listenerKey(name, byEnv)
		}
		if !known && serviceLink.MatchString(name) {
			continue
		}
		if !known {
			return resolved{}, usageError{fmt.Errorf("environment: unknown variable %s%s", name, didYouMean(name, maps.Keys(byEnv)))}
		}
		if err := put(key, value, "environment "+name); err != nil {
			return resolved{}, err
		}
	}
	for _, s := range from.flags {
		if err := put(s.key, s.value, "--set"); err != nil {
			return resolved{}, err
		}
	}
	out.noEffect = slices.Sorted(maps.Keys(useless))
	return out, nil
}

// baseKey is the key that a name is of: a name may have the prefix of a listener.
func baseKey(name string) string {
	rest, found := strings.CutPrefix(name, server.ListenerPrefix)
	if !found {
		return name
	}
	_, key, _ := strings.Cut(rest, ".")
	return key
}

// listenerKey reads a variable such as TIDEMARK_LISTENER_NAME_BROKERS_SSL_CLIENT_AUTH: a key that one listener has for
// itself. The name of the listener is what stands before the longest key that fits.
func listenerKey(variable string, byEnv map[string]string) (string, bool) {
	rest, found := strings.CutPrefix(variable, envName(server.ListenerPrefix))
	if !found {
		return "", false
	}
	for i := range len(rest) {
		if key, known := byEnv[envPrefix+rest[i+1:]]; known && i > 0 && rest[i] == '_' {
			return server.ListenerPrefix + strings.ToLower(rest[:i]) + "." + key, true
		}
	}
	return "", false
}

// envName is the environment variable of a key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// didYouMean names the nearest of the valid names, if there is a near one.
func didYouMean(name string, valid func(yield func(string) bool)) string {
	type candidate struct {
		name     string
		distance int
	}
	best := candidate{distance: len(name)/3 + 2}
	for v := range valid {
		c := candidate{v, editDistance(name, v)}
		if cmp.Or(cmp.Compare(c.distance, best.distance), strings.Compare(c.name, best.name)) < 0 {
			best = c
		}
	}
	if best.name == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best.name)
}

// editDistance counts the insertions, deletions and replacements of bytes between two names (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
