// Package keystore keeps the certificate, the private key and the trusted authorities of one end of TLS connections, as
// Kafka's keys ssl.* give them: PEM in files or in the configuration itself.
//
// A Store follows its sources: each handshake looks whether a file or a setting has changed, and what can no longer be read
// or does not fit together leaves what was there before in force. So a certificate may be renewed under a running broker,
// in any order of writing its files, and a mistake made then disturbs nobody who is connected or connects.
//
// It is the only place that reads key material. The registry, the listeners of a broker, its connections to others and the
// command line's clients all use it. It never decides whom to let in: that an authority has signed a certificate is all
// that it says.
package keystore
