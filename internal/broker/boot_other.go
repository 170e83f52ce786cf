//go:build !linux

package broker

// bootID is empty: the system does not say which boot this is, so a killed process counts as a power cut (D9).
func bootID() string { return "" }
