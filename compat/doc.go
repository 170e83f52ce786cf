// Package compat holds what tidemark is held against: Apache Kafka's own command-line tools, its own reader of log
// directories, and other people's clients. It is a module of its own, so that nothing it needs reaches the broker. Its
// tests want a JDK (17 or newer) and Maven; `go test ./...` here builds the broker and fetches Kafka by itself. Package
// suites runs what other people wrote; this package starts the brokers for it.
package compat
