package server

import "github.com/tidemark-io/tidemark/internal/meta"

// tlsKeys configure listeners with TLS, all of them or one by its prefix (ListenerPrefix), and connections to other
// brokers. Package keystore reads them.
var tlsKeys = inBroker(false, []meta.ConfigKey{
	{
		Name: "ssl.client.auth", Type: meta.StringType, HasDefault: true, Default: "none", Valid: meta.OneOf("required", "requested", "none"), Dynamic: meta.PerBroker,
		Doc: "Whether a client must present a certificate: required, requested or none. The listener for brokers requires one unless its own listener.name.brokers.ssl.client.auth says otherwise.",
	},
	{
		Name: "ssl.enabled.protocols", Type: meta.ListType, HasDefault: true, Default: "TLSv1.2,TLSv1.3", Dynamic: meta.PerBroker,
		Doc: "TLS versions accepted: TLSv1.2, TLSv1.3 or both.",
	},
	{
		Name: "ssl.keystore.type", Type: meta.StringType, HasDefault: true, Default: "JKS", Dynamic: meta.PerBroker,
		Doc: "Format of the key store. PEM is the only one that is read; set to JKS or PKCS12 it is refused with the way to convert.",
	},
	{
		Name: "ssl.keystore.location", Type: meta.StringType, Dynamic: meta.PerBroker,
		Doc: "PEM file of this broker's certificate, those that lead to its authority, and its private key without a password. It is read again when it changes.",
	},
	{
		Name: "ssl.keystore.password", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Password of the key store. PEM has none: a listener with TLS refuses it.",
	},
	{
		Name: "ssl.key.password", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Password of the private key. Encrypted keys are not supported: a listener with TLS refuses it.",
	},
	{
		Name: "ssl.keystore.key", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Private key as PEM text, without a password, instead of ssl.keystore.location.",
	},
	{
		Name: "ssl.keystore.certificate.chain", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Certificate chain as PEM text, instead of ssl.keystore.location.",
	},
	{
		Name: "ssl.truststore.type", Type: meta.StringType, HasDefault: true, Default: "JKS", Dynamic: meta.PerBroker,
		Doc: "Format of the trust store. PEM is the only one that is read; set to JKS or PKCS12 it is refused with the way to convert.",
	},
	{
		Name: "ssl.truststore.location", Type: meta.StringType, Dynamic: meta.PerBroker,
		Doc: "PEM file of the authorities that sign the peers' certificates. It is read again when it changes.",
	},
	{
		Name: "ssl.truststore.password", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Password of the trust store. PEM has none: a listener with TLS refuses it.",
	},
	{
		Name: "ssl.truststore.certificates", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Trusted certificates as PEM text, instead of ssl.truststore.location.",
	},
	{
		Name: "ssl.endpoint.identification.algorithm", Type: meta.StringType, HasDefault: true, Default: "https", Dynamic: meta.PerBroker,
		Doc: "How the host name of another broker is checked against its certificate: https, or empty for not at all.",
	},
	{
		Name: "ssl.cipher.suites", Type: meta.ListType, HasDefault: true, Dynamic: meta.PerBroker,
		Doc: "Cipher suites of TLS 1.2 that are accepted; empty means all safe ones. Those of TLS 1.3 are always accepted.",
	},
})
