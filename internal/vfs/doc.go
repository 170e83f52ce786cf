// Package vfs is the disk under everything that tidemark keeps: [Disk], the real one, and [Memory], one that can lose
// its power.
//
// Invariant: what [File.Sync], [FS.SyncDir] or [FS.SyncAll] has confirmed survives a power cut; of everything else
// any legal part may survive. Memory exists to make callers prove that they depend on nothing more. One conformance
// suite runs over both.
//
// A [File] is a name, not a descriptor: Disk opens a descriptor when the file is used and closes the least recently
// used ones above Options.OpenFilesMax, so a hundred thousand segments can be held by a process that may open twenty
// thousand files.
//
// The commit log, the broker's checkpoints and the registry's ballast call it. It never retries a failed write or
// sync, never interprets bytes, never starts a goroutine, and imports no other package of tidemark.
package vfs
