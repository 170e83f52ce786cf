// Package meta holds the facts that brokers agree on: identities, epochs, partition states, configuration keys and the
// immutable cluster [Image]. It consists of values and pure functions: nothing here does I/O, takes a lock or reads a
// clock. Every package above uses it; it knows none of them.
package meta
