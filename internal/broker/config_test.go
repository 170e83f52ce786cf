package broker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidemark-io/tidemark/internal/registry"
)

func TestParseConfig(t *testing.T) {
	loopback := Listener{Name: "PLAINTEXT", Address: Address{"localhost", 9092}}
	for _, test := range []struct {
		name     string
		settings map[string]string
		want     Config
		err      string // part of the refusal
	}{
		{name: "nothing set", want: Config{BrokerID: 1, Listeners: []Listener{loopback}}},
		{
			name: "Kafka's own server.properties",
			settings: map[string]string{
				"node.id": "7", "log.dirs": "/var/lib/data", "controller.listener.names": "CONTROLLER",
				"listeners":                      "PLAINTEXT://:9092,CONTROLLER://:9093",
				"advertised.listeners":           "PLAINTEXT://broker:9092,CONTROLLER://broker:9093",
				"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
			},
			want: Config{BrokerID: 7, DataDir: "/var/lib/data", Listeners: []Listener{
				{Name: "PLAINTEXT", Address: Address{"", 9092}, Advertised: &Address{"broker", 9092}},
			}},
		},
		{
			name:     "named listeners",
			settings: map[string]string{"listeners": "in://[::1]:0, OUT://0.0.0.0:19092", "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT"},
			want:     Config{BrokerID: 1, Listeners: []Listener{{Name: "IN", Address: Address{"::1", 0}}, {Name: "OUT", Address: Address{"0.0.0.0", 19092}}}},
		},
		{
			name:     "admin, profiles, registry and rack",
			settings: map[string]string{"admin.listener": "", "pprof.listener": "localhost:6060", "registry.endpoints": "a:2379,b:2379", "broker.rack": "r1", "broker.id": "-1"},
			want: Config{
				BrokerID: 1, Listeners: []Listener{loopback}, AdminOff: true, Profiles: &Address{"localhost", 6060},
				RegistryEndpoints: []string{"a:2379", "b:2379"}, Rack: "r1",
			},
		},
		{
			name:     "one of three",
			settings: map[string]string{"node.id": "2", "cluster.brokers": "3@c:9192/7000, 1@a:9192,2@b:9192"},
			want: Config{BrokerID: 2, Listeners: []Listener{loopback}, Cluster: []ClusterBroker{
				{ID: 1, Internal: Address{"a", 9192}, Registry: Address{"a", 9193}},
				{ID: 2, Internal: Address{"b", 9192}, Registry: Address{"b", 9193}},
				{ID: 3, Internal: Address{"c", 9192}, Registry: Address{"c", 7000}},
			}},
		},
		{
			name: "a registry of five with certificates",
			settings: map[string]string{
				"node.id": "1", "cluster.brokers": "1@a:1", "registry.members": "5",
				"registry.ssl.certificate.location": "c", "registry.ssl.key.location": "k", "registry.ssl.ca.location": "a",
			},
			want: Config{
				BrokerID: 1, Listeners: []Listener{loopback}, Cluster: []ClusterBroker{{ID: 1, Internal: Address{"a", 1}, Registry: Address{"a", 2}}},
				RegistryMembers: 5, RegistryTLS: &registry.TLS{CertFile: "c", KeyFile: "k", CAFile: "a"},
			},
		},
		{
			name:     "a selector of replicas",
			settings: map[string]string{"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector", "broker.rack": "a"},
			want:     Config{BrokerID: 1, Listeners: []Listener{loopback}, Rack: "a", RackAware: true},
		},
		{name: "another selector", settings: map[string]string{"replica.selector.class": "my.Own"}, err: "replica.selector.class=my.Own: want org.apache.kafka"},
		{name: "an even registry", settings: map[string]string{"registry.members": "2"}, err: "registry.members=2: want 1, 3 or 5"},
		{name: "a certificate without its key", settings: map[string]string{"registry.ssl.certificate.location": "c"}, err: "set all three or none"},
		{name: "a cluster without an id", settings: map[string]string{"cluster.brokers": "1@a:1"}, err: "cluster.brokers is set and node.id is not"},
		{name: "a cluster without this broker", settings: map[string]string{"node.id": "4", "cluster.brokers": "1@a:1,2@b:1"}, err: "does not list this broker, whose node.id is 4"},
		{name: "a broker twice", settings: map[string]string{"cluster.brokers": "1@a:1,1@b:1"}, err: "broker 1 is listed twice"},
		{name: "one address twice", settings: map[string]string{"cluster.brokers": "1@a:9192,2@a:9193"}, err: "brokers 1 and 2 both use a:9193"},
		{name: "a cluster without ids", settings: map[string]string{"cluster.brokers": "a:9192"}, err: `"a:9192": want ID@HOST:PORT`},
		{name: "a cluster on every address", settings: map[string]string{"cluster.brokers": "1@0.0.0.0:9192"}, err: "the other brokers cannot connect to"},
		{name: "a bad registry port", settings: map[string]string{"cluster.brokers": "1@a:9192/x"}, err: "want a registry port from 1 to 65535"},
		{name: "two directories", settings: map[string]string{"log.dirs": "a,b"}, err: "log.dirs=a,b names 2 directories; tidemark uses exactly one"},
		{name: "two ids", settings: map[string]string{"node.id": "1", "broker.id": "2"}, err: "node.id=1 and broker.id=2 differ"},
		{name: "a listener without a protocol", settings: map[string]string{"listeners": "EXT://:9092"}, err: "add for example EXT:PLAINTEXT to listener.security.protocol.map"},
		{name: "a listener with a login", settings: map[string]string{"listeners": "SASL_SSL://:9092"}, err: "listener SASL_SSL has the security protocol SASL_SSL; this version serves PLAINTEXT and SSL"},
		{name: "one name twice", settings: map[string]string{"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, err: "the name PLAINTEXT occurs twice"},
		{name: "no scheme", settings: map[string]string{"listeners": "localhost:9092"}, err: `"localhost:9092": want NAME://HOST:PORT`},
		{name: "port out of range", settings: map[string]string{"listeners": "PLAINTEXT://:70000"}, err: "want a port from 0 to 65535"},
		{name: "controllers only", settings: map[string]string{"listeners": "C://:9093", "controller.listener.names": "C"}, err: "no listener for clients"},
		{name: "advertised without listener", settings: map[string]string{"advertised.listeners": "OUT://h:1"}, err: "there is no listener OUT"},
		{name: "advertised any address", settings: map[string]string{"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, err: "clients cannot connect"},
		{name: "admin without port", settings: map[string]string{"admin.listener": "localhost"}, err: "admin.listener=localhost"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseConfig(test.settings)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			test.want.Settings = test.settings
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Config{}, "Now", "Listen", "Dial", "FreeBytes", "FS", "Registry", "Logger")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, test := range []struct {
		spoil func(*Config)
		field string
	}{
		{func(c *Config) { c.BrokerID = -1 }, "BrokerID"},
		{func(c *Config) { c.Listeners = []Listener{} }, "Listeners"},
		{func(c *Config) { c.Listeners[0].Port = -1 }, "Listeners"},
		{func(c *Config) { c.Listeners = append(c.Listeners, c.Listeners[0]) }, "Listeners"},
	} {
		c := Config{}.WithDefaults()
		test.spoil(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), test.field) {
			t.Errorf("error %v does not name %s", err, test.field)
		}
	}
	if err := (Config{}).WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}

// FuzzParseConfig proves that no setting of listeners makes the parser panic, and that what it takes can be listened on:
// every listener has a name of its own and a port in range.
func FuzzParseConfig(f *testing.F) {
	f.Add("PLAINTEXT://:9092,CONTROLLER://:9093", "PLAINTEXT://broker:9092", "CONTROLLER:PLAINTEXT", "CONTROLLER", "localhost:9644")
	f.Add("in://[::1]:0", "", "IN:PLAINTEXT", "", "")
	f.Add("PLAINTEXT://", "://", ":", ",", ":")
	f.Fuzz(func(t *testing.T, listeners, advertised, protocols, controllers, admin string) {
		c, err := ParseConfig(map[string]string{
			"listeners": listeners, "advertised.listeners": advertised, "listener.security.protocol.map": protocols,
			"controller.listener.names": controllers, "admin.listener": admin, "pprof.listener": admin, "log.dirs": "data",
		})
		if err != nil {
			return
		}
		if err := c.WithDefaults().Validate(); err != nil {
			t.Fatalf("parsed, and then refused: %v", err)
		}
	})
}
