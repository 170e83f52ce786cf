package main

import (
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/keystore/keystoretest"
)

// The commands talk to a broker that wants TLS, and a certificate of its clients, with the file of Kafka's clients.
func TestCommandsOverTLS(t *testing.T) {
	dir := t.TempDir()
	authority := keystoretest.NewAuthority(t)
	chain, key := authority.Issue("broker")
	pem := keystoretest.Write(t, dir, "broker.pem", chain+key)
	authorities := keystoretest.Write(t, dir, "ca.pem", authority.PEM)
	c := cli{t, mustChild(t, "listeners=SSL://127.0.0.1:0", "ssl.keystore.location="+pem, "ssl.truststore.location="+authorities, "ssl.client.auth=required")}
	config := func(name, text string) string { return keystoretest.Write(t, dir, name, text) }
	good := config("good.properties", "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location="+authorities+
		"\nssl.keystore.type=PEM\nssl.keystore.location="+pem+"\nclient.id=of-kafka-only\n")

	c.must("", "topic", "create", "lines", "--command-config", good)
	c.must("over TLS\n", "produce", "lines", "--command-config", good)
	if got := c.must("", "consume", "lines", "--from-beginning", "--exit-at-end", "--command-config", good); got != "over TLS\n" {
		t.Errorf("consumed %q", got)
	}
	if got := c.must("", "cluster", "status", "--command-config", good); !strings.Contains(got, "  healthy") {
		t.Error(got)
	}
	stranger := config("stranger.properties", "security.protocol=SSL\nssl.keystore.location="+pem+"\nssl.truststore.location="+
		keystoretest.Write(t, dir, "other.pem", keystoretest.NewAuthority(t).PEM)+"\n")
	c.refused(exitFailure, "certificate signed by unknown authority", "", "topic", "list", "--command-config", stranger)
	c.refused(exitFailure, "is TLS missing?", "", "topic", "list")
	c.refused(exitUsage, "security.protocol=SASL_SSL: want PLAINTEXT or SSL", "", "topic", "list", "--command-config", config("sasl.properties", "security.protocol=SASL_SSL\n"))
	c.refused(exitUsage, "nowhere.pem: no such file", "", "topic", "list", "--command-config",
		config("lost.properties", "security.protocol=SSL\nssl.truststore.location=nowhere.pem\n"))
	c.refused(exitUsage, "nowhere.properties: no such file", "", "topic", "list", "--command-config", "nowhere.properties")
}
