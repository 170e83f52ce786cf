package main

import "golang.org/x/sys/unix"

func setCongestionControl(fd int) error {
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
}
