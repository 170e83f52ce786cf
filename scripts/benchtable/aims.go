package main

import "regexp"

// aim is what a benchmark should reach, and what is known to limit it where it does not.
type aim struct {
	name  *regexp.Regexp
	unit  string
	most  float64
	limit string
}

// aims are in the order in which they are looked up: the first whose name matches holds. What has no aim is printed for
// its ratio alone.
var aims = []aim{
	{
		regexp.MustCompile(`^commitlog/Append/cache/`), "x-raw", 1.5,
		"every record is walked (15 to 25 ns each at 100 B, record/Validate), as Kafka does; the raw write does not look inside a batch",
	},
	{
		regexp.MustCompile(`^commitlog/Append/fsync/.*writers=1$`), "x-raw", 1.25,
		"two goroutine switches between writer and group commit for each fdatasync; the device's own times vary more than that",
	},
	{
		regexp.MustCompile(`^commitlog/Append/fsync/`), "x-raw", 1.25,
		"writers come back one by one after a sync, and the next round waits for them as long as its least cost; the raw write has them at hand",
	},
	{
		regexp.MustCompile(`^commitlog/AppendLogs/fsync/`), "x-raw", 1.25,
		"a commit of the file system's journal for each log, or one for all where little else is unwritten; the raw write has one file",
	},
	{
		regexp.MustCompile(`^commitlog/Read/`), "x-raw", 1.5,
		"two index look-ups for each read",
	},
	{
		regexp.MustCompile(`^commitlog/Recover/`), "x-raw", 1 / 0.7,
		"the checksum of every byte on the core that reads (about a fifth of the time); several logs are recovered in parallel, one log is not",
	},
	{
		regexp.MustCompile(`^commitlog/Open10kPartitions`), "s/open", 3,
		"one directory listing and the opening of three files' names for each partition, by as many workers as there are cores",
	},
	{
		regexp.MustCompile(`^commitlog/Open10kPartitions`), "KiB/partition", 20,
		"the log, its active segment and its indexes' handles",
	},
	{
		regexp.MustCompile(`^wire/ProduceParse/`), "x-raw", 1,
		"kmsg decodes the same without checking what the protocol demands",
	},
	{
		regexp.MustCompile(`^server/Produce/|^server/Fetch/|^server/Request`), "x-raw", 1.5,
		"deadlines, the order of answers, budgets and metrics of a request; the bare server has none of them",
	},
	{
		regexp.MustCompile(`^tidemark/Start`), "ms-to-first-ack", 300,
		"the embedded registry's start and, with partitions, the opening of each; cpu-ms in the raw output tells how much of it was work and how much was waiting for a core",
	},
}

func aimOf(name, unit string) *aim {
	for i := range aims {
		if aims[i].unit == unit && aims[i].name.MatchString(name) {
			return &aims[i]
		}
	}
	return nil
}
