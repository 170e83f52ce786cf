package main

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpaced is a dialer's Control: connections to this host get the congestion control "cubic", as the broker's side of
// them does. A host's default may be bbr, which paces loopback as if it crossed a real link.
func unpaced(_, address string, socket syscall.RawConn) error {
	if host, _, err := net.SplitHostPort(address); err != nil || !net.ParseIP(host).IsLoopback() {
		return nil //nolint:nilerr // not an address of this host
	}
	return socket.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") // a kernel without it keeps its default
	})
}
