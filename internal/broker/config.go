package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/registry"
	"github.com/tidemark-io/tidemark/internal/vfs"
)

// Defaults of Config.
const (
	DefaultDataDir         = "./tidemark-data" // never a temporary folder: U-135
	DefaultPort            = 9092
	DefaultAdminPort       = 9644
	DefaultListenerName    = "PLAINTEXT"
	defaultBrokerID        = 1
	defaultRegistryMembers = 3
	registryStartPatience  = 60 * time.Second
	plaintext              = "PLAINTEXT"
	ssl                    = "SSL"
	controllerListenersKey = "controller.listener.names"
)

// Config is everything that one broker is told. ParseConfig makes one from settings by Kafka's keys; WithDefaults fills
// in what may be left out, Validate names what is wrong.
type Config struct {
	// DataDir holds everything that this broker keeps: partitions, checkpoints, the embedded registry. One process uses it
	// at a time. Default "./tidemark-data". Key log.dirs.
	DataDir string
	// BrokerID is this broker's id in the cluster; it is written into the data directory and cannot change. ParseConfig
	// makes it 1 if nothing is set. Key node.id.
	BrokerID meta.BrokerID
	// Rack is told to clients and used to spread replicas. Key broker.rack.
	Rack string
	// RackAware sends consumers to replicas in their own rack. Key replica.selector.class.
	RackAware bool

	// Listeners take clients. Default: PLAINTEXT on port 9092 of both loopback addresses. Keys listeners and
	// advertised.listeners.
	Listeners []Listener
	// Admin takes health and metrics over HTTP. Default localhost:9644. Key admin.listener.
	Admin *Address
	// AdminOff is true for no admin HTTP at all: the key is set to nothing.
	AdminOff bool
	// Profiles takes /debug/pprof; nil, the default, is off. Key pprof.listener.
	Profiles *Address

	// BrokersProtocol is "SSL" if brokers talk to each other over TLS, whatever Listeners have; empty or "PLAINTEXT" if not.
	// Key security.inter.broker.protocol.
	BrokersProtocol string
	// Cluster lists every broker of the cluster, sorted by id, this one included; empty for a lone broker. Key cluster.brokers.
	Cluster []ClusterBroker

	// RegistryEndpoints are external etcd endpoints; with none, the registry is embedded. Key registry.endpoints.
	RegistryEndpoints []string
	// RegistryMembers is how many brokers of Cluster, counted from the lowest id, embed a member of the registry at most.
	// Default 3. Key registry.members.
	RegistryMembers int
	// RegistryTLS secures what brokers and the registry's members say to each other; nil for none. Keys registry.ssl.*.
	RegistryTLS *registry.TLS
	// Registry, if not nil, is used instead of an embedded or external one, and not closed: for tests and simulation.
	Registry registry.Store

	// Settings are the values set for broker keys, in canonical form: the static configuration that DescribeConfigs shows
	// and that topics fall back to.
	Settings map[string]string

	// Host says where this broker runs, for people who look into the registry. Default: the machine's name.
	Host string
	// Version is what this build calls itself.
	Version string
	// Logger receives the log. Default: none.
	Logger *slog.Logger
	// LogLevel is the level of Logger, which clients may change. Default: one that nobody reads.
	LogLevel *slog.LevelVar
	// FS is the disk. Default: the real one.
	FS vfs.FS
	// FreeBytes tells the free and total space of the disk that holds a directory. Default: the real one's.
	FreeBytes func(dir string) (free, total uint64, err error)
	// Listen opens listeners. Default: TCP.
	Listen ListenFunc
	// Dial opens connections to other brokers. Default: TCP.
	Dial DialFunc
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Address is where to listen.
type Address struct {
	// Host is a name or address; empty is every address, "localhost" both loopback addresses.
	Host string
	// Port 0 draws a free one.
	Port int
}

// String is host:port.
func (a Address) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// Listener is where clients connect, and what they are told.
type Listener struct {
	Name string // such as "PLAINTEXT"
	// Protocol is "SSL" for TLS, as Settings configure it; empty or "PLAINTEXT" for none.
	Protocol string
	Address
	// Advertised is what clients are told; nil tells each client the address that it dialled (U-132).
	Advertised *Address
}

// WithDefaults returns the configuration with what was left out filled in.
func (c Config) WithDefaults() Config {
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	if c.Listeners == nil {
		c.Listeners = []Listener{{Name: DefaultListenerName, Address: Address{loopbackHost, DefaultPort}}}
	}
	if c.Admin == nil && !c.AdminOff {
		c.Admin = &Address{loopbackHost, DefaultAdminPort}
	}
	if c.Host == "" {
		c.Host, _ = os.Hostname() // it only helps people
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.FS == nil {
		c.FS = vfs.NewDisk(vfs.Options{})
	}
	if c.FreeBytes == nil {
		c.FreeBytes = vfs.FreeBytes
	}
	if c.Listen == nil {
		var tcp net.ListenConfig
		c.Listen = func(ctx context.Context, network, address string) (net.Listener, error) {
			return tcp.Listen(ctx, network, address)
		}
	}
	if c.Dial == nil {
		var tcp net.Dialer
		c.Dial = tcp.DialContext
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.RegistryMembers == 0 {
		c.RegistryMembers = defaultRegistryMembers
	}
	return c
}

// Validate checks a configuration with its defaults; the error names the field.
func (c Config) Validate() error {
	switch {
	case c.BrokerID < 0:
		return fmt.Errorf("BrokerID is %d; it must be 0 or more", c.BrokerID)
	case len(c.Listeners) == 0:
		return errors.New("Listeners is empty; at least one is needed") //nolint:staticcheck // a field's name
	case c.Registry != nil && len(c.RegistryEndpoints) > 0:
		return errors.New("Registry and RegistryEndpoints are both set; one of them can count") //nolint:staticcheck // a field's name
	}
	if _, listed := c.self(); len(c.Cluster) > 0 && !listed {
		return fmt.Errorf("Cluster does not list broker %d, this one", c.BrokerID) //nolint:staticcheck // a field's name
	}
	names := make(map[string]bool)
	for _, l := range c.Listeners {
		if l.Name == "" || names[l.Name] {
			return fmt.Errorf("Listeners: the name %q is empty or occurs twice", l.Name) //nolint:staticcheck // a field's name
		}
		names[l.Name] = true
		if l.Name == brokersListener {
			return fmt.Errorf("Listeners: the name %s is the one of the listener for brokers; give it another one", brokersListener) //nolint:staticcheck // a field's name
		}
		if l.Port < 0 || l.Port > 65535 {
			return fmt.Errorf("Listeners: port %d of %s is not between 0 and 65535", l.Port, l.Name) //nolint:staticcheck // a field's name
		}
	}
	return nil
}

// ParseConfig makes a configuration from settings by broker key, as a properties file, the environment and flags give
// them together. The values have been checked against Keys; what they say together is checked here, and the error names
// the key.
func ParseConfig(settings map[string]string) (Config, error) {
	c := Config{Settings: settings, Rack: settings["broker.rack"]}
	var err error
	for _, key := range []string{"listeners", "log.dirs"} {
		if text, set := settings[key]; set && len(meta.SplitList(text)) == 0 {
			return c, fmt.Errorf("%s is empty; give it a value, or leave it out for the default", key)
		}
	}
	if c.DataDir, err = parseDataDir(settings); err != nil {
		return c, err
	}
	if c.BrokerID, err = parseBrokerID(settings); err != nil {
		return c, err
	}
	if c.Listeners, err = parseListeners(settings); err != nil {
		return c, err
	}
	if c.RackAware, err = parseSelector(settings["replica.selector.class"]); err != nil {
		return c, err
	}
	admin, set := settings["admin.listener"]
	if c.AdminOff = set && admin == ""; admin != "" {
		address, err := parseAddress(admin)
		if err != nil {
			return c, fmt.Errorf("admin.listener=%s: %w", admin, err)
		}
		c.Admin = &address
	}
	if text := settings["pprof.listener"]; text != "" {
		address, err := parseAddress(text)
		if err != nil {
			return c, fmt.Errorf("pprof.listener=%s: %w", text, err)
		}
		c.Profiles = &address
	}
	c.RegistryEndpoints = meta.SplitList(settings["registry.endpoints"])
	if c.Cluster, err = parseCluster(settings, c.BrokerID); err != nil {
		return c, err
	}
	if err := c.parseBrokersProtocol(settings); err != nil {
		return c, err
	}
	return c, c.parseRegistry(settings)
}

// parseBrokerID reads node.id and its older name.
func parseBrokerID(settings map[string]string) (meta.BrokerID, error) {
	id, found := meta.BrokerID(defaultBrokerID), false
	for _, key := range []string{"node.id", "broker.id"} {
		text, set := settings[key]
		if !set || key == "broker.id" && text == "-1" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return meta.NoBroker, fmt.Errorf("%s=%s: want a number from 0 to 2147483647", key, text)
		}
		if found && id != meta.BrokerID(n) {
			return meta.NoBroker, fmt.Errorf("node.id=%s and broker.id=%s differ; set node.id only", id, text)
		}
		id, found = meta.BrokerID(n), true
	}
	return id, nil
}

// parseSelector tells whether consumers read from replicas in their own rack: Kafka's own two classes are known by name.
func parseSelector(class string) (rackAware bool, err error) {
	const leader, rack = "org.apache.kafka.common.replica.LeaderSelector", "org.apache.kafka.common.replica.RackAwareReplicaSelector"
	switch class {
	case "", leader:
		return false, nil
	case rack:
		return true, nil
	}
	return false, fmt.Errorf("replica.selector.class=%s: want %s or %s, or leave it out for the first", class, leader, rack)
}

func parseDataDir(settings map[string]string) (string, error) {
	for _, key := range []string{"log.dirs", "log.dir"} {
		switch dirs := meta.SplitList(settings[key]); len(dirs) {
		case 0:
		case 1:
			return dirs[0], nil
		default:
			return "", fmt.Errorf("%s=%s names %d directories; tidemark uses exactly one", key, settings[key], len(dirs))
		}
	}
	return "", nil
}

// parseListeners reads listeners, advertised.listeners and listener.security.protocol.map. Listeners that a Kafka
// configuration has for its controllers are left out.
func parseListeners(settings map[string]string) ([]Listener, error) {
	text, set := settings["listeners"]
	var listeners []Listener
	if !set || text == "" {
		listeners = []Listener{{Name: DefaultListenerName, Address: Address{loopbackHost, DefaultPort}}}
	}
	protocols := make(map[string]string)
	for _, item := range meta.SplitList(settings["listener.security.protocol.map"]) {
		name, protocol, _ := strings.Cut(item, ":")
		protocols[strings.ToUpper(name)] = strings.ToUpper(protocol)
	}
	controllers := meta.SplitList(settings[controllerListenersKey])
	for _, item := range meta.SplitList(text) {
		name, address, err := parseNamed(item)
		if err != nil {
			return nil, fmt.Errorf("listeners=%s: %w", text, err)
		}
		if slices.Contains(controllers, name) {
			continue
		}
		protocol, mapped := protocols[name]
		if !mapped {
			protocol = name
		}
		if known := []string{plaintext, ssl, "SASL_PLAINTEXT", "SASL_SSL"}; !mapped && !slices.Contains(known, name) {
			return nil, fmt.Errorf("listeners=%s: what listener %s speaks is not said; add for example %s:%s to listener.security.protocol.map", text, name, name, plaintext)
		}
		if protocol != plaintext && protocol != ssl {
			return nil, fmt.Errorf("listeners=%s: listener %s has the security protocol %s; this version serves %s and %s", text, name, protocol, plaintext, ssl)
		}
		if slices.ContainsFunc(listeners, func(l Listener) bool { return l.Name == name }) {
			return nil, fmt.Errorf("listeners=%s: the name %s occurs twice; give each listener a name of its own, and its protocol in listener.security.protocol.map", text, name)
		}
		listeners = append(listeners, Listener{Name: name, Protocol: strings.TrimPrefix(protocol, plaintext), Address: address})
	}
	if len(listeners) == 0 {
		return nil, fmt.Errorf("listeners=%s has no listener for clients; want for example PLAINTEXT://:9092", text)
	}
	advertised := settings["advertised.listeners"]
	for _, item := range meta.SplitList(advertised) {
		name, address, err := parseNamed(item)
		if err != nil {
			return nil, fmt.Errorf("advertised.listeners=%s: %w", advertised, err)
		}
		if slices.Contains(controllers, name) {
			continue
		}
		i := slices.IndexFunc(listeners, func(l Listener) bool { return l.Name == name })
		switch {
		case i < 0:
			return nil, fmt.Errorf("advertised.listeners=%s: there is no listener %s; listeners has %s", advertised, name, listeners[0].Name)
		case address.Host == "" || address.Host == "0.0.0.0" || address.Host == "::":
			return nil, fmt.Errorf("advertised.listeners=%s: clients cannot connect to %q; name a host that they can reach", advertised, address.Host)
		}
		listeners[i].Advertised = &address
	}
	return listeners, nil
}

// parseNamed reads NAME://host:port.
func parseNamed(text string) (string, Address, error) {
	name, rest, found := strings.Cut(text, "://")
	if !found || name == "" {
		return "", Address{}, fmt.Errorf("%q: want NAME://HOST:PORT, for example PLAINTEXT://localhost:9092", text)
	}
	address, err := parseAddress(rest)
	return strings.ToUpper(name), address, err
}

// parseAddress reads host:port; the host may be empty.
func parseAddress(text string) (Address, error) {
	host, number, err := net.SplitHostPort(text)
	if err != nil {
		return Address{}, fmt.Errorf("%q: want HOST:PORT", text)
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("%q: want a port from 0 to 65535", text)
	}
	return Address{host, int(port)}, nil
}
