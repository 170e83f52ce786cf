// Package console speaks to operators over HTTP: health (/livez, /startupz, /readyz), metrics (/metrics) and, on a
// listener of its own, profiles (/debug/pprof).
//
// The invariant it keeps: asking changes nothing, and needs nothing that may be stuck. A health answer reads a few
// values in memory, so it is given while the broker recovers, when its disk is full and when the registry is gone.
//
// Its caller is broker, which hands it listeners and small functions. It never imports the server, and never reaches
// for a default registry of metrics or a default mux.
package console
