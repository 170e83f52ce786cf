//go:build !linux

package server

import (
	"errors"
	"net"
)

// sender puts bytes on a socket. This form is for systems where file ranges are read and written.
type sender struct{ socket net.Conn }

func newSender(socket net.Conn) sender { return sender{socket} }

// sendsFiles tells whether sendfile is worth trying.
func (s *sender) sendsFiles() bool { return false }

// write sends all of b; more is of no use here.
func (s *sender) write(b []byte, _ bool) error {
	_, err := s.socket.Write(b)
	return err
}

// sendfile is never called, since sendsFiles says no.
func (s *sender) sendfile(int, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }
