//go:build !linux

package main

import "errors"

func setCongestionControl(int) error { return errors.ErrUnsupported }
