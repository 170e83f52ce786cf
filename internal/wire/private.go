package wire

import "math"

// KeyApply is the controller's statement to a broker (D5). Keys from privateKeyMin on are no part of Kafka's protocol: they
// are served on the listener for brokers only, and ApiVersions never lists them.
const KeyApply int16 = 32001

const privateKeyMin int16 = 32000

// privateAPIs are the rows of the private requests. Their bodies have codecs of their own (meta.ParseApply), which do what
// API.Check does for the others.
var privateAPIs = [...]API{
	{Key: KeyApply, Name: "Apply", Flexible: math.MaxInt16, BytesMax: ProduceBytesMax},
}

// Private tells whether the request is one between brokers, which no client may send.
func (a *API) Private() bool { return a.Key >= privateKeyMin }

func lookupPrivate(key int16) *API {
	for i := range privateAPIs {
		if privateAPIs[i].Key == key {
			return &privateAPIs[i]
		}
	}
	return nil
}
