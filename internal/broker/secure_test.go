package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tidemark-io/tidemark/internal/keystore/keystoretest"
)

// Three brokers whose clients and brokers both use TLS keep three copies of what is produced; the listener for brokers lets
// nobody in without a certificate of the authority; and a certificate can be changed at run time for one listener, but not
// for one that cannot be used. (issue 4, Build 1: peer and client traffic)
func TestClusterOverTLS(t *testing.T) {
	authority, dir := keystoretest.NewAuthority(t), t.TempDir()
	chain, key := authority.Issue("broker")
	file := keystoretest.Write(t, dir, "broker.pem", chain+key)
	trusted := keystoretest.Write(t, dir, "authority.pem", authority.PEM)
	brokers := startClusterWith(t, 3, func(c *Config) {
		c.Settings = map[string]string{"ssl.keystore.location": file, "ssl.truststore.location": trusted}
		c.BrokersProtocol = ssl
		c.Listeners = []Listener{{Name: "SECURE", Protocol: ssl, Address: Address{"127.0.0.1", 0}}}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority.PEM))
	secure := kgo.DialTLSConfig(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	client := brokers[0].client(secure)
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(t.Context(), 3, 3, nil, "secret"); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "secret", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	self, _ := brokers[0].state.load().Broker(1)
	for _, e := range self.Endpoints {
		if e.Protocol != ssl {
			t.Errorf("endpoint %+v is registered without TLS", e)
		}
	}

	brokers[0].listening.Lock()
	internal := brokers[0].listening.brokers.String()
	brokers[0].listening.Unlock()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", internal)
	if err == nil {
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 the refusal comes after the client's side is done
		_ = conn.Close()
	}
	var refused *net.OpError
	if !errors.As(err, &refused) || refused.Op != "remote error" || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("the listener for brokers said to somebody without a certificate: %v", err)
	}

	set := func(settings map[string]string) error {
		var changes []kadm.AlterConfig
		for name, value := range settings {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
		}
		all, err := admin.AlterBrokerConfigs(t.Context(), changes, 1)
		if err == nil {
			err = all[0].Err
			if err != nil {
				err = errors.New(all[0].ErrMessage)
			}
		}
		return err
	}
	err = set(map[string]string{"listener.name.secure.ssl.keystore.location": trusted})
	if err == nil || !strings.Contains(err.Error(), "TLS of listener SECURE: "+trusted+": there is no private key") {
		t.Errorf("a key store without a key was accepted: %v", err)
	}
	chain, key = authority.Issue("renewed")
	if err := set(map[string]string{"listener.name.secure.ssl.keystore.location": keystoretest.Write(t, dir, "renewed.pem", chain+key)}); err != nil {
		t.Fatal(err)
	}
	renewed, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).DialContext(t.Context(), "tcp", brokers[0].Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer renewed.Close()
	if name := renewed.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; name != "renewed" {
		t.Errorf("after the change, clients see the certificate of %s", name)
	}
}

// What a configuration says of TLS is understood or refused with the key and what would be right.
func TestConfigOfTLS(t *testing.T) {
	cluster := map[string]string{"node.id": "1", ClusterKey: "1@a:1,2@b:1", "security.inter.broker.protocol": "SSL"}
	with := func(base map[string]string, more ...string) map[string]string {
		all := maps.Clone(base)
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	for _, test := range []struct {
		settings map[string]string
		want     string
	}{
		{map[string]string{"listeners": "SASL_SSL://:9093"}, "this version serves PLAINTEXT and SSL"},
		{map[string]string{"security.inter.broker.protocol": "SASL_SSL"}, "this version has PLAINTEXT and SSL among brokers"},
		{cluster, "the registry reads its certificates from files"},
		{with(cluster, "ssl.keystore.type", "JKS"), "ssl.keystore.type=JKS is not supported"},
	} {
		if _, err := ParseConfig(test.settings); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.settings, err, test.want)
		}
	}
	c, err := ParseConfig(with(cluster, "ssl.keystore.location", "all.pem", "ssl.truststore.location", "ca.pem",
		"listener.name.brokers.ssl.keystore.location", "own.pem", "listeners", "PLAINTEXT://:9092,OUT://:9093", "listener.security.protocol.map", "OUT:SSL"))
	if err != nil {
		t.Fatal(err)
	}
	if c.RegistryTLS == nil || c.RegistryTLS.CertFile != "own.pem" || c.RegistryTLS.CAFile != "ca.pem" {
		t.Errorf("the registry has %+v", c.RegistryTLS)
	}
	if c.Listeners[0].Protocol != "" || c.Listeners[1].Protocol != ssl {
		t.Errorf("listeners %+v", c.Listeners)
	}
	b, err := New(Config{DataDir: t.TempDir(), BrokerID: 1, Listeners: []Listener{{Name: "SSL", Protocol: ssl, Address: Address{"127.0.0.1", 0}}}, AdminOff: true})
	if err != nil {
		t.Fatal(err)
	}
	var start *StartError
	if err := b.Run(t.Context()); !errors.As(err, &start) || start.Fault != CertificateUnusable || !strings.Contains(err.Error(), "TLS of listener SSL: there is no certificate") {
		t.Errorf("a listener with TLS and no certificate: %v", err)
	}
}
