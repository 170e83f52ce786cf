package broker

import "fmt"

// StartFault says why a broker could not start. cmd turns each into an exit code (docs/operate/exit-codes.md).
type StartFault uint8

// The faults that an operator can do something about at once. Anything else is an error without a StartError.
const (
	// PortTaken: an address to listen on is in use.
	PortTaken StartFault = iota + 1
	// DirectoryLocked: another process holds the data directory.
	DirectoryLocked
	// OtherCluster: the data directory belongs to another cluster or broker id.
	OtherCluster
	// NewerFormat: the data directory or the registry was written by a newer version.
	NewerFormat
	// DirectoryUnusable: the data directory cannot be created, read or written, or the registry in it is damaged.
	DirectoryUnusable
	// AddressUnusable: an address to listen on does not exist here, or needs a privilege.
	AddressUnusable
	// CertificateUnusable: a listener has TLS, and its certificates are missing or cannot be used.
	CertificateUnusable
)

// String names the fault.
func (f StartFault) String() string {
	switch f {
	case PortTaken:
		return "port taken"
	case DirectoryLocked:
		return "data directory locked"
	case OtherCluster:
		return "other cluster"
	case NewerFormat:
		return "newer format"
	case DirectoryUnusable:
		return "data directory unusable"
	case AddressUnusable:
		return "address unusable"
	case CertificateUnusable:
		return "certificate unusable"
	default:
		return "unknown"
	}
}

// StartError is returned by New and Run when the start fails for a reason that its reader can remedy.
type StartError struct {
	Fault StartFault
	Err   error
	Fix   string // what to do, as a clause without a full stop
}

// Error is one line: what is wrong, and the fix.
func (e *StartError) Error() string { return fmt.Sprintf("%v; %s", e.Err, e.Fix) }

// Unwrap gives the cause.
func (e *StartError) Unwrap() error { return e.Err }
