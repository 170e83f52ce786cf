package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-io/tidemark/internal/keystore"
	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
)

// ClusterKey is the key that makes a broker one of several; the flag --cluster sets it.
const ClusterKey = "cluster.brokers"

// ClusterBroker is one broker of the list that every broker of a cluster is started with.
type ClusterBroker struct {
	ID meta.BrokerID
	// Internal is where it takes the other brokers' requests.
	Internal Address
	// Registry is where its member of the registry takes the others' traffic, if it has one: the port after Internal's
	// unless the list says another one.
	Registry Address
}

// clusterExample is in every message about a malformed list.
const clusterExample = "1@host1:9192,2@host2:9192,3@host3:9192"

// parseCluster reads ID@HOST:PORT[/REGISTRYPORT], separated by commas, and sorts by id. An empty list is a lone broker.
func parseCluster(settings map[string]string, self meta.BrokerID) ([]ClusterBroker, error) {
	text := settings[ClusterKey]
	var brokers []ClusterBroker
	taken := make(map[Address]meta.BrokerID)
	for _, item := range meta.SplitList(text) {
		b, err := parseClusterBroker(item)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", ClusterKey, text, err)
		}
		if slices.ContainsFunc(brokers, func(other ClusterBroker) bool { return other.ID == b.ID }) {
			return nil, fmt.Errorf("%s=%s: broker %s is listed twice", ClusterKey, text, b.ID)
		}
		for _, address := range []Address{b.Internal, b.Registry} {
			if other, found := taken[address]; found {
				return nil, fmt.Errorf("%s=%s: brokers %s and %s both use %s; remember that the registry of each takes the port after its own, unless it is given as HOST:PORT/REGISTRYPORT",
					ClusterKey, text, other, b.ID, address)
			}
			taken[address] = b.ID
		}
		brokers = append(brokers, b)
	}
	if len(brokers) > 0 && !slices.ContainsFunc(brokers, func(b ClusterBroker) bool { return b.ID == self }) {
		return nil, fmt.Errorf("%s=%s does not list this broker, whose node.id is %s; every broker is started with the whole list", ClusterKey, text, self)
	}
	slices.SortFunc(brokers, func(a, b ClusterBroker) int { return cmp.Compare(a.ID, b.ID) })
	return brokers, nil
}

func parseClusterBroker(item string) (ClusterBroker, error) {
	number, rest, found := strings.Cut(item, "@")
	id, err := strconv.ParseInt(number, 10, 32)
	if !found || err != nil || id < 0 {
		return ClusterBroker{}, fmt.Errorf("%q: want ID@HOST:PORT, for example %s", item, clusterExample)
	}
	rest, registryPort, explicit := strings.Cut(rest, "/")
	internal, err := parseAddress(rest)
	switch {
	case err != nil:
		return ClusterBroker{}, err
	case internal.Host == "" || internal.Host == "0.0.0.0" || internal.Host == "::":
		return ClusterBroker{}, fmt.Errorf("%q: the other brokers cannot connect to %q; name a host that they can reach", item, internal.Host)
	case internal.Port == 0 || internal.Port == 65535 && !explicit:
		return ClusterBroker{}, fmt.Errorf("%q: want a port from 1 to 65534", item)
	}
	b := ClusterBroker{ID: meta.BrokerID(id), Internal: internal, Registry: Address{internal.Host, internal.Port + 1}}
	if explicit {
		port, err := strconv.ParseUint(registryPort, 10, 16)
		if err != nil || port == 0 {
			return ClusterBroker{}, fmt.Errorf("%q: want a registry port from 1 to 65535 after the slash", item)
		}
		b.Registry.Port = int(port)
	}
	return b, nil
}

// parseBrokersProtocol reads whether brokers talk to each other over TLS.
func (c *Config) parseBrokersProtocol(settings map[string]string) error {
	const key = "security.inter.broker.protocol"
	switch c.BrokersProtocol = settings[key]; c.BrokersProtocol {
	case "", plaintext, ssl:
		return nil
	}
	return fmt.Errorf("%s=%s: this version has %s and %s among brokers", key, c.BrokersProtocol, plaintext, ssl)
}

// parseRegistry reads how the brokers of a cluster share the registry.
func (c *Config) parseRegistry(settings map[string]string) error {
	_, named := settings["node.id"]
	_, older := settings["broker.id"]
	if len(c.Cluster) > 0 && !named && !older {
		return fmt.Errorf("%s is set and node.id is not; say which broker of the list this is, for example with --set node.id=1", ClusterKey)
	}
	if text, set := settings["registry.members"]; set {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 5 || n%2 == 0 {
			return fmt.Errorf("registry.members=%s: want 1, 3 or 5; an even number bears no more failures than the odd one below it", text)
		}
		c.RegistryMembers = n
	}
	files := registry.TLS{
		CertFile: settings["registry.ssl.certificate.location"], KeyFile: settings["registry.ssl.key.location"], CAFile: settings["registry.ssl.ca.location"],
	}
	switch {
	case files == registry.TLS{} && c.BrokersProtocol == ssl && c.embedsRegistry():
		return c.shareCertificates()
	case files == registry.TLS{}:
	case files.CertFile == "" || files.KeyFile == "" || files.CAFile == "":
		return errors.New("registry.ssl.certificate.location, registry.ssl.key.location and registry.ssl.ca.location go together; set all three or none")
	default:
		c.RegistryTLS = &files
	}
	return nil
}

// shareCertificates lets the registry's traffic have the certificates of the brokers' listener: one that is secured and
// one that is not would be a door beside the gate.
func (c *Config) shareCertificates() error {
	settings, err := keystore.Parse(sslOf(brokersListener, func(name string) (string, bool) {
		value, set := c.Settings[name]
		return value, set
	}))
	switch {
	case err != nil:
		return fmt.Errorf("security.inter.broker.protocol=%s: %w", ssl, err)
	case settings.ChainFile == "" || settings.AuthoritiesFile == "":
		return fmt.Errorf("security.inter.broker.protocol=%s: the registry reads its certificates from files; set ssl.keystore.location and ssl.truststore.location, or registry.ssl.*", ssl)
	}
	c.RegistryTLS = &registry.TLS{CertFile: settings.ChainFile, KeyFile: settings.KeyFile, CAFile: settings.AuthoritiesFile}
	return nil
}

// self is this broker's entry of the list; false for a lone broker.
func (c Config) self() (ClusterBroker, bool) {
	i := slices.IndexFunc(c.Cluster, func(b ClusterBroker) bool { return b.ID == c.BrokerID })
	if i < 0 {
		return ClusterBroker{}, false
	}
	return c.Cluster[i], true
}
