package main

import "testing"

// The registry of a directory is repaired only when asked for twice, and never under a broker that runs.
func TestRegistryRecoverRefuses(t *testing.T) {
	c := newCLI(t)
	c.refused(exitUsage, "this cannot be undone", "", "registry", "recover", c.broker.dir)
	c.refused(exitUsage, "want one data directory", "", "registry", "recover", "--yes")
	c.refused(exitLocked, "is locked by process", "", "registry", "recover", c.broker.dir, "--yes")
	c.refused(exitUsage, "data directory: stat /nowhere: no such file", "", "registry", "recover", "/nowhere", "--yes")
	c.refused(exitFailure, "there is no member of a registry", "", "registry", "recover", t.TempDir(), "--yes")
}
