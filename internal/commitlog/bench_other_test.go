//go:build !linux

package commitlog

import "os"

func syncData(file *os.File) error { return file.Sync() }
