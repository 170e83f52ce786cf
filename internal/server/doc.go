// Package server speaks the Kafka protocol to clients: it accepts connections, reads frames, dispatches each request to
// its handler and writes the answers in request order. There is one file for each request.
//
// The invariants it keeps: answers leave a connection in the order of its requests (D13); no byte is stored before its
// number was compared with a limit and charged to the budget of the whole server; what one connection sends can close
// that connection, and nothing else.
//
// Its caller is broker. It never touches a log or the registry: partitions are replica's, changes of the cluster are
// the controller's, and what the cluster looks like comes from the Image. The map from their errors to Kafka's codes
// is errors.go.
package server
