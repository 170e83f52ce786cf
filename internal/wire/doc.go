// Package wire is the protocol between a broker and its peers, as bytes: the one table of API keys and versions
// ([APIs]), request headers, the structural check that makes a request safe to decode ([API.Check]), and hand-written
// forms of the two hot messages, the Produce request ([Produce.Parse]) and the Fetch response ([FetchHeader]).
//
// The invariant it keeps: no number that a peer sent is believed before it was compared with the bytes that are there.
// A frame of n bytes never makes a decoder allocate more than [ChargeFactor] times n.
//
// Between brokers there are private requests beside Kafka's ([KeyApply]), and [Peer] calls another broker over a
// pipelined connection of its own.
//
// Its callers are server and, for calls between brokers, broker. It knows no topic and no error policy, and keeps no state
// but the free lists of [Pool] and the connections of Peers.
package wire
