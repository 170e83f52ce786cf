// Package suites runs other people's test suites, and probes of ours that use other people's clients, against a broker:
// tidemark, or Apache Kafka as the baseline. A failure that Kafka shares is the suite's; any other is ours, and is either
// repaired or explained in exceptions.json. docs/compatibility.md is made from the results of both and never written by
// hand.
//
// Whatever a suite needs comes from a package registry in its Prepare; its Run happens in a network namespace of its own,
// with nothing but loopback, because suites assume fixed ports. cmd/compat is the program around this package.
package suites
