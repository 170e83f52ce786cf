package broker

import (
	"os"
	"strings"
)

// bootID identifies the running kernel: it changes with every boot, so that a killed process can be told from a power
// cut (D9). It is empty if the system does not say.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
