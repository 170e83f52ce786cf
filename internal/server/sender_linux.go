package server

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sender puts bytes on a socket. On Linux, over plain TCP, it knows that more is coming (MSG_MORE), so that a header and
// the records after it share a segment, and sends file ranges without reading them (sendfile).
type sender struct {
	socket net.Conn
	raw    syscall.RawConn // nil if the socket is not plain TCP: then it copies
}

// sendfileChunkBytes bounds one system call, so that write deadlines have a say in between.
const sendfileChunkBytes = 4 << 20

// newSender prepares a socket. Peers on the same host get the congestion control "cubic": a host's default may be bbr,
// which paces loopback traffic as if it crossed a real link and halves its speed, while cubic is always compiled in.
// It is best effort: a kernel without it keeps its default, and remote peers are left alone.
func newSender(socket net.Conn) sender {
	tcp, ok := beneath(socket).(*net.TCPConn)
	if !ok {
		return sender{socket: socket}
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return sender{socket: socket}
	}
	if peer, ok := tcp.RemoteAddr().(*net.TCPAddr); ok && peer.IP.IsLoopback() {
		_ = raw.Control(func(fd uintptr) { // best effort, see above
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
		})
	}
	if net.Conn(tcp) != socket {
		return sender{socket: socket} // what goes over TLS must pass through this process
	}
	return sender{socket, raw}
}

// sendsFiles tells whether sendfile is worth trying.
func (s *sender) sendsFiles() bool { return s.raw != nil }

// write sends all of b; more tells that the answer goes on, so that a short segment may wait for what follows.
func (s *sender) write(b []byte, more bool) error {
	if s.raw == nil || !more {
		_, err := s.socket.Write(b)
		return err
	}
	var failure error
	err := s.raw.Write(func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			switch {
			case err == nil:
				b = b[n:]
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			default:
				failure = err
				return true
			}
		}
		return true
	})
	return errors.Join(err, failure)
}

// sendfile sends length bytes of a file from an explicit offset, never from the descriptor's shared position. A file
// system without it gets sent < length and no error: the caller copies the rest.
func (s *sender) sendfile(file int, offset, length int64) (sent int64, err error) {
	var failure error
	err = s.raw.Write(func(fd uintptr) bool {
		for sent < length {
			from := offset + sent
			n, err := unix.Sendfile(int(fd), file, &from, int(min(length-sent, sendfileChunkBytes)))
			if n > 0 {
				sent += int64(n)
			}
			switch {
			case err == nil && n == 0:
				failure = io.ErrUnexpectedEOF
				return true
			case err == nil, errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			case sent == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)):
				return true
			default:
				failure = err
				return true
			}
		}
		return true
	})
	return sent, errors.Join(err, failure)
}
