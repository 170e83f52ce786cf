package server

import "github.com/tidemark-io/tidemark/internal/meta"

// securityKeys are accepted and described; connections are not authenticated yet.
var securityKeys = inBroker(true, []meta.ConfigKey{
	{
		Name: "authorizer.class.name", Type: meta.StringType, HasDefault: true,
		Doc: "Authorizer of requests; empty allows everything.",
	},
	{
		Name: "early.start.listeners", Type: meta.ListType,
		Doc: "Listeners that open before the authorizer is ready.",
	},
	{
		Name: "sasl.mechanism.controller.protocol", Type: meta.StringType, HasDefault: true, Default: "GSSAPI",
		Doc: "SASL mechanism towards controllers.",
	},
	{
		Name: "connections.max.reauth.ms", Type: meta.LongType, HasDefault: true, Default: "0",
		Doc: "Milliseconds after which a connection must authenticate again; 0 means never.",
	},
	{
		Name: "sasl.server.max.receive.size", Type: meta.IntType, HasDefault: true, Default: "524288",
		Doc: "Largest SASL message before authentication, in bytes.",
	},
	{
		Name: "security.providers", Type: meta.StringType,
		Doc: "Java security providers.",
	},
	{
		Name: "principal.builder.class", Type: meta.ClassType, HasDefault: true, Default: "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", Dynamic: meta.PerBroker,
		Doc: "Plug-in that names the user of a connection. Plug-ins are not supported.",
	},
	{
		Name: "ssl.principal.mapping.rules", Type: meta.StringType, HasDefault: true, Default: "DEFAULT",
		Doc: "Rules that turn a certificate's name into a user.",
	},
	{
		Name: "ssl.allow.dn.changes", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether a replaced certificate may have another distinguished name.",
	},
	{
		Name: "ssl.allow.san.changes", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether a replaced certificate may have other alternative names.",
	},
	{
		Name: "ssl.protocol", Type: meta.StringType, HasDefault: true, Default: "TLSv1.3", Dynamic: meta.PerBroker,
		Doc: "Newest TLS version.",
	},
	{
		Name: "ssl.provider", Type: meta.StringType, Dynamic: meta.PerBroker,
		Doc: "Java provider of TLS.",
	},
	{
		Name: "ssl.keymanager.algorithm", Type: meta.StringType, HasDefault: true, Default: "SunX509", Dynamic: meta.PerBroker,
		Doc: "Java algorithm of the key manager.",
	},
	{
		Name: "ssl.trustmanager.algorithm", Type: meta.StringType, HasDefault: true, Default: "PKIX", Dynamic: meta.PerBroker,
		Doc: "Java algorithm of the trust manager.",
	},
	{
		Name: "ssl.secure.random.implementation", Type: meta.StringType, Dynamic: meta.PerBroker,
		Doc: "Java source of randomness.",
	},
	{
		Name: "ssl.engine.factory.class", Type: meta.ClassType, Dynamic: meta.PerBroker,
		Doc: "Plug-in that makes TLS engines. Plug-ins are not supported.",
	},
	{
		Name: "sasl.mechanism.inter.broker.protocol", Type: meta.StringType, HasDefault: true, Default: "GSSAPI", Dynamic: meta.PerBroker,
		Doc: "SASL mechanism between brokers.",
	},
	{
		Name: "sasl.enabled.mechanisms", Type: meta.ListType, HasDefault: true, Default: "GSSAPI", Dynamic: meta.PerBroker,
		Doc: "SASL mechanisms offered to clients.",
	},
	{
		Name: "sasl.server.callback.handler.class", Type: meta.ClassType,
		Doc: "Plug-in that checks SASL credentials. Plug-ins are not supported.",
	},
	{
		Name: "sasl.kerberos.principal.to.local.rules", Type: meta.ListType, HasDefault: true, Default: "DEFAULT", Dynamic: meta.PerBroker,
		Doc: "Rules that turn a Kerberos principal into a user.",
	},
	{
		Name: "sasl.jaas.config", Type: meta.PasswordType, Dynamic: meta.PerBroker, Sensitive: true,
		Doc: "Credentials and login modules of SASL.",
	},
	{
		Name: "sasl.client.callback.handler.class", Type: meta.ClassType,
		Doc: "Plug-in of SASL clients. Plug-ins are not supported.",
	},
	{
		Name: "sasl.login.class", Type: meta.ClassType,
		Doc: "Plug-in of SASL logins. Plug-ins are not supported.",
	},
	{
		Name: "sasl.login.callback.handler.class", Type: meta.ClassType,
		Doc: "Plug-in of SASL logins. Plug-ins are not supported.",
	},
	{
		Name: "sasl.kerberos.service.name", Type: meta.StringType, Dynamic: meta.PerBroker,
		Doc: "Kerberos service name of the brokers.",
	},
	{
		Name: "sasl.kerberos.kinit.cmd", Type: meta.StringType, HasDefault: true, Default: "/usr/bin/kinit", Dynamic: meta.PerBroker,
		Doc: "Path of kinit.",
	},
	{
		Name: "sasl.kerberos.ticket.renew.window.factor", Type: meta.DoubleType, HasDefault: true, Default: "0.8", Dynamic: meta.PerBroker,
		Doc: "Share of a ticket's life after which it is renewed.",
	},
	{
		Name: "sasl.kerberos.ticket.renew.jitter", Type: meta.DoubleType, HasDefault: true, Default: "0.05", Dynamic: meta.PerBroker,
		Doc: "Share of random variation of the renewal.",
	},
	{
		Name: "sasl.kerberos.min.time.before.relogin", Type: meta.LongType, HasDefault: true, Default: "60000", Dynamic: meta.PerBroker,
		Doc: "Milliseconds between renewals.",
	},
	{
		Name: "sasl.login.refresh.window.factor", Type: meta.DoubleType, HasDefault: true, Default: "0.8", Dynamic: meta.PerBroker,
		Doc: "Share of a token's life after which it is refreshed.",
	},
	{
		Name: "sasl.login.refresh.window.jitter", Type: meta.DoubleType, HasDefault: true, Default: "0.05", Dynamic: meta.PerBroker,
		Doc: "Share of random variation of the refresh.",
	},
	{
		Name: "sasl.login.refresh.min.period.seconds", Type: meta.ShortType, HasDefault: true, Default: "60", Dynamic: meta.PerBroker,
		Doc: "Seconds between refreshes at least.",
	},
	{
		Name: "sasl.login.refresh.buffer.seconds", Type: meta.ShortType, HasDefault: true, Default: "300", Dynamic: meta.PerBroker,
		Doc: "Seconds before the end of a token's life that a refresh keeps free.",
	},
	{
		Name: "sasl.login.connect.timeout.ms", Type: meta.IntType,
		Doc: "Milliseconds to connect to the identity provider.",
	},
	{
		Name: "sasl.login.read.timeout.ms", Type: meta.IntType,
		Doc: "Milliseconds to read from the identity provider.",
	},
	{
		Name: "sasl.login.retry.backoff.max.ms", Type: meta.LongType, HasDefault: true, Default: "10000",
		Doc: "Milliseconds between retries at the identity provider at most.",
	},
	{
		Name: "sasl.login.retry.backoff.ms", Type: meta.LongType, HasDefault: true, Default: "100",
		Doc: "Milliseconds before the first retry at the identity provider.",
	},
	{
		Name: "sasl.oauthbearer.jwt.retriever.class", Type: meta.ClassType, HasDefault: true, Default: "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
		Doc: "Plug-in that fetches tokens. Plug-ins are not supported.",
	},
	{
		Name: "sasl.oauthbearer.jwt.validator.class", Type: meta.ClassType, HasDefault: true, Default: "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
		Doc: "Plug-in that validates tokens. Plug-ins are not supported.",
	},
	{
		Name: "sasl.oauthbearer.scope", Type: meta.StringType,
		Doc: "Scope of the token asked for.",
	},
	{
		Name: "sasl.oauthbearer.client.credentials.client.id", Type: meta.StringType,
		Doc: "Client id at the identity provider.",
	},
	{
		Name: "sasl.oauthbearer.client.credentials.client.secret", Type: meta.PasswordType, Sensitive: true,
		Doc: "Client secret at the identity provider.",
	},
	{
		Name: "sasl.oauthbearer.assertion.algorithm", Type: meta.StringType, HasDefault: true, Default: "RS256", Valid: meta.OneOfFold("ES256", "RS256"),
		Doc: "Signature algorithm of assertions.",
	},
	{
		Name: "sasl.oauthbearer.assertion.claim.aud", Type: meta.StringType,
		Doc: "Audience of assertions.",
	},
	{
		Name: "sasl.oauthbearer.assertion.claim.exp.seconds", Type: meta.IntType, HasDefault: true, Default: "300", Valid: meta.Between(0, 86400),
		Doc: "Life of assertions in seconds.",
	},
	{
		Name: "sasl.oauthbearer.assertion.claim.iss", Type: meta.StringType,
		Doc: "Issuer of assertions.",
	},
	{
		Name: "sasl.oauthbearer.assertion.claim.jti.include", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether assertions carry an id.",
	},
	{
		Name: "sasl.oauthbearer.assertion.claim.nbf.seconds", Type: meta.IntType, HasDefault: true, Default: "60", Valid: meta.Between(0, 3600),
		Doc: "Seconds by which assertions are valid before their issue.",
	},
	{
		Name: "sasl.oauthbearer.assertion.claim.sub", Type: meta.StringType,
		Doc: "Subject of assertions.",
	},
	{
		Name: "sasl.oauthbearer.assertion.file", Type: meta.StringType,
		Doc: "File with a ready assertion.",
	},
	{
		Name: "sasl.oauthbearer.assertion.private.key.file", Type: meta.StringType,
		Doc: "File of the key that signs assertions.",
	},
	{
		Name: "sasl.oauthbearer.assertion.private.key.passphrase", Type: meta.PasswordType, Sensitive: true,
		Doc: "Passphrase of the key that signs assertions.",
	},
	{
		Name: "sasl.oauthbearer.assertion.template.file", Type: meta.StringType,
		Doc: "File with a template of assertions.",
	},
	{
		Name: "sasl.oauthbearer.scope.claim.name", Type: meta.StringType, HasDefault: true, Default: "scope",
		Doc: "Claim that holds the scope.",
	},
	{
		Name: "sasl.oauthbearer.sub.claim.name", Type: meta.StringType, HasDefault: true, Default: "sub",
		Doc: "Claim that holds the user.",
	},
	{
		Name: "sasl.oauthbearer.token.endpoint.url", Type: meta.StringType,
		Doc: "Where tokens come from.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.url", Type: meta.StringType,
		Doc: "Where keys that verify tokens come from.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.refresh.ms", Type: meta.LongType, HasDefault: true, Default: "3600000",
		Doc: "Milliseconds between refreshes of the keys.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type: meta.LongType, HasDefault: true, Default: "100",
		Doc: "Milliseconds before the first retry to fetch the keys.",
	},
	{
		Name: "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type: meta.LongType, HasDefault: true, Default: "10000",
		Doc: "Milliseconds between retries to fetch the keys at most.",
	},
	{
		Name: "sasl.oauthbearer.clock.skew.seconds", Type: meta.IntType, HasDefault: true, Default: "30",
		Doc: "Seconds by which clocks may differ.",
	},
	{
		Name: "sasl.oauthbearer.allow.unverified.audience", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether tokens need no expected audience.",
	},
	{
		Name: "sasl.oauthbearer.expected.audience", Type: meta.ListType, HasDefault: true,
		Doc: "Audiences accepted.",
	},
	{
		Name: "sasl.oauthbearer.allow.unverified.issuer", Type: meta.BoolType, HasDefault: true, Default: "false",
		Doc: "Whether tokens need no expected issuer.",
	},
	{
		Name: "sasl.oauthbearer.expected.issuer", Type: meta.StringType,
		Doc: "Issuer accepted.",
	},
	{
		Name: "delegation.token.secret.key", Type: meta.PasswordType, Sensitive: true,
		Doc: "Key that signs delegation tokens.",
	},
	{
		Name: "delegation.token.max.lifetime.ms", Type: meta.LongType, HasDefault: true, Default: "604800000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds that a delegation token can live.",
	},
	{
		Name: "delegation.token.expiry.time.ms", Type: meta.LongType, HasDefault: true, Default: "86400000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds after which a delegation token must be renewed.",
	},
	{
		Name: "delegation.token.expiry.check.interval.ms", Type: meta.LongType, HasDefault: true, Default: "3600000", Valid: meta.AtLeast(1),
		Doc: "Milliseconds between removals of expired delegation tokens.",
	},
})
