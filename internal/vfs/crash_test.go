package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/vfs"
)

// TestCrashKeepsLegalContents: of a file, synced bytes survive, and what survives of later ones is a legal part.
func TestCrashKeepsLegalContents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := vfs.NewMemory(rapid.Uint64().Draw(t, "seed"))
		file := created(t, disk, "/a")
		check(t, disk.SyncDir("/"))
		versions := [][]byte{{}} // contents since the last sync, the synced ones first
		for step := range rapid.IntRange(0, 12).Draw(t, "steps") {
			now := slices.Clone(versions[len(versions)-1])
			switch rapid.SampledFrom([]string{"append", "append", "write", "truncate", "sync"}).Draw(t, "step") {
			case "append":
				now = append(now, filled(t, step)...)
				_, err := file.WriteAt(now[len(versions[len(versions)-1]):], int64(len(versions[len(versions)-1])))
				check(t, err)
			case "write":
				p, off := filled(t, step), rapid.IntRange(0, len(now)+5000).Draw(t, "offset")
				now = append(now, make([]byte, max(off+len(p)-len(now), 0))...)
				copy(now[off:], p)
				_, err := file.WriteV([][]byte{p[:len(p)/2], p[len(p)/2:]}, int64(off))
				check(t, err)
			case "truncate":
				size := rapid.IntRange(0, len(now)+5000).Draw(t, "size")
				now = append(now, make([]byte, max(size-len(now), 0))...)[:size]
				check(t, file.Truncate(int64(size)))
			case "sync":
				check(t, file.Sync())
				versions = versions[len(versions)-1:]
				continue
			}
			versions = append(versions, now)
		}
		mode := rapid.SampledFrom(vfs.CrashModes[:]).Draw(t, "mode")
		got, err := vfs.ReadFile(disk.Crash(mode), "/a", 1<<30)
		check(t, err)
		if reason := illegal(mode, versions, got); reason != "" {
			t.Fatalf("%v: %s", mode, reason)
		}
		if _, err := file.ReadAt(make([]byte, 1), 0); !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("read of a crashed disk: %v, want ErrCrashed", err)
		}
	})
}

// illegal says what is wrong with contents after a crash, given those before it.
func illegal(mode vfs.CrashMode, versions [][]byte, got []byte) string {
	sizeSeen := false
	for i, version := range versions {
		if bytes.Equal(version, got) {
			return ""
		}
		sizeSeen = sizeSeen || len(version) == len(got)
		if mode == vfs.Ext4 && i > 0 && partOf(versions[i-1], version, got) {
			return ""
		}
	}
	if mode != vfs.Adversarial {
		return fmt.Sprintf("%d bytes are none of the %d contents since the sync", len(got), len(versions))
	}
	if !sizeSeen {
		return fmt.Sprintf("the file never had %d bytes", len(got))
	}
	for at, have := range got {
		legal := false
		for _, version := range versions {
			legal = legal || at < len(version) && version[at] == have || at >= len(version) && have == 0
		}
		if !legal {
			return fmt.Sprintf("byte %d is %d, which it never was since the sync", at, have)
		}
	}
	return ""
}

// partOf reports whether got is before with the first pages of the write that led to after.
func partOf(before, after, got []byte) bool {
	for cut := 0; cut < len(after); cut += 4096 {
		part := slices.Concat(after[:cut], before[min(cut, len(before)):])
		if len(part) > len(got) {
			continue
		}
		part = append(part, make([]byte, len(got)-len(part))...)
		if bytes.Equal(part, got) && len(got) <= max(len(before), len(after)) {
			return true
		}
	}
	return false
}

// TestCrashKeepsLegalNames: of a directory, synced entries survive, a file is never in two places, and what survives of
// later changes is a legal part.
func TestCrashKeepsLegalNames(t *testing.T) {
	names := []string{"/a/1", "/a/2", "/b/1", "/b/2"}
	rapid.Check(t, func(t *rapid.T) {
		disk := vfs.NewMemory(rapid.Uint64().Draw(t, "seed"))
		check(t, disk.MkdirAll("/a"))
		check(t, disk.MkdirAll("/b"))
		check(t, disk.SyncDir("/"))
		now := map[string]string{}           // name → contents, which say who it is
		states := []map[string]string{{}}    // since the last sync of anything
		seen := map[string]map[string]bool{} // name → who was there since the last sync of its directory; "" is nobody
		safe := map[string]bool{}            // who must be somewhere: once durable under a name, and never removed or replaced
		settle := func(name string) {
			seen[name] = map[string]bool{now[name]: true}
			safe[now[name]] = now[name] != ""
		}
		for _, name := range names {
			settle(name)
		}
		for step := range rapid.IntRange(0, 16).Draw(t, "steps") {
			from, to := rapid.SampledFrom(names).Draw(t, "from"), rapid.SampledFrom(names).Draw(t, "to")
			switch rapid.SampledFrom([]string{"create", "create", "rename", "rename", "remove", "sync", "sync all"}).Draw(t, "step") {
			case "create":
				if now[from] != "" {
					continue
				}
				now[from] = fmt.Sprint(step + 1)
				file := created(t, disk, from)
				_, err := file.WriteAt([]byte(now[from]), 0)
				check(t, err)
				check(t, file.Sync())
				check(t, file.Close())
				states = nil
			case "rename":
				if now[from] == "" || from == to {
					continue
				}
				check(t, disk.Rename(from, to))
				delete(safe, now[to])
				now[to] = now[from]
				delete(now, from)
			case "remove":
				if now[from] == "" {
					continue
				}
				check(t, disk.Remove(from))
				delete(safe, now[from])
				delete(now, from)
			case "sync":
				check(t, disk.SyncDir(from[:2]))
				for _, name := range names {
					if name[:2] == from[:2] {
						settle(name)
					}
				}
				states = nil
			case "sync all":
				check(t, disk.SyncAll("/"))
				for _, name := range names {
					settle(name)
				}
				states = nil
			}
			states = append(states, maps.Clone(now))
			for _, name := range names {
				seen[name][now[name]] = true
			}
		}
		mode := rapid.SampledFrom(vfs.CrashModes[:]).Draw(t, "mode")
		after := disk.Crash(mode)
		got, where := map[string]string{}, map[string]string{}
		for _, name := range names {
			who, err := vfs.ReadFile(after, name, 100)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			if len(who) > 0 {
				got[name] = string(who)
			}
			if !seen[name][string(who)] {
				t.Fatalf("%v: %s holds %q; since the last sync it held %v", mode, name, who, seen[name])
			}
			if where[string(who)] != "" && len(who) > 0 {
				t.Fatalf("%v: %q is both %s and %s", mode, who, where[string(who)], name)
			}
			where[string(who)] = name
		}
		for who, must := range safe {
			if must && where[who] == "" {
				t.Fatalf("%v: %q was durable and is nowhere", mode, who)
			}
		}
		if mode != vfs.Adversarial && !slices.ContainsFunc(states, func(s map[string]string) bool { return maps.Equal(s, got) }) {
			t.Fatalf("%v: %v is no state since the last sync: %v", mode, got, states)
		}
	})
}

// TestCrashModesDiffer proves that each mode reaches the outcomes that it is there for, and no worse ones.
func TestCrashModesDiffer(t *testing.T) {
	outcomes := map[vfs.CrashMode]map[string]int{}
	for _, mode := range vfs.CrashModes {
		outcomes[mode] = map[string]int{}
		for seed := range uint64(200) {
			disk := vfs.NewMemory(seed)
			for _, name := range []string{"/a", "/b"} {
				file := created(t, disk, name)
				page := bytes.Repeat([]byte{1}, 4096)
				check(t, second(file.WriteAt(slices.Concat(page, page), 0)))
			}
			after := disk.Crash(mode)
			a, errA := vfs.ReadFile(after, "/a", 1<<20)
			_, errB := vfs.ReadFile(after, "/b", 1<<20)
			for what, happened := range map[string]bool{
				"all":                               errA == nil && errB == nil && len(a) == 8192 && bytes.IndexByte(a, 0) < 0,
				"nothing":                           errA != nil && errB != nil,
				"no contents":                       errA == nil && len(a) == 0,
				"one page":                          errA == nil && len(a) == 4096,
				"the second page without the first": len(a) == 8192 && a[0] == 0 && a[8191] == 1,
				"a torn page":                       len(a) == 8192 && a[0] != a[512],
				"the second name without the first": errA != nil && errB == nil,
			} {
				if happened {
					outcomes[mode][what]++
				}
			}
		}
	}
	all := []string{"all", "nothing", "no contents", "one page", "the second page without the first", "a torn page", "the second name without the first"}
	legal := map[vfs.CrashMode][]string{
		vfs.Prefix:      {"all", "nothing", "no contents"},
		vfs.Ext4:        {"all", "nothing", "no contents", "one page"},
		vfs.Adversarial: {"all", "nothing", "no contents", "the second page without the first", "a torn page", "the second name without the first"},
	}
	for mode, expected := range legal {
		for _, what := range all {
			if got, want := outcomes[mode][what] > 0, slices.Contains(expected, what); got != want {
				t.Errorf("%v: reached %q: %v, want %v", mode, what, got, want)
			}
		}
	}
}

// TestCrashIsReplayable: the same seed and calls leave the same disk; a second draw may leave another.
func TestCrashIsReplayable(t *testing.T) {
	run := func() []string {
		disk := vfs.NewMemory(7)
		for i := range 20 {
			file := created(t, disk, fmt.Sprintf("/f%02d", i))
			check(t, second(file.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, 9000), 0)))
		}
		var left []string
		for range 5 {
			left = append(left, contents(t, disk.Crash(vfs.Adversarial)))
		}
		return left
	}
	first, again := run(), run()
	if !slices.Equal(first, again) {
		t.Error("the same seed left different disks")
	}
	if len(slices.Compact(first)) == 1 {
		t.Error("five draws left the same disk")
	}
}

// TestCrashKeepsTheOrderOfOneName: a new file takes a name only if the rename that freed it has survived.
func TestCrashKeepsTheOrderOfOneName(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(100) {
		disk := vfs.NewMemory(seed)
		check(t, vfs.WriteAtomic(disk, "/a", []byte("old")))
		check(t, disk.Rename("/a", "/b"))
		file := created(t, disk, "/a")
		check(t, second(file.WriteAt([]byte("new"), 0)))
		check(t, file.Sync())
		after := disk.Crash(vfs.Adversarial)
		a, _ := vfs.ReadFile(after, "/a", 10)
		b, _ := vfs.ReadFile(after, "/b", 10)
		outcomes[fmt.Sprintf("a=%s b=%s", a, b)]++
	}
	for _, legal := range []string{"a=old b=", "a= b=old", "a=new b=old"} {
		if outcomes[legal] == 0 {
			t.Errorf("%q was never reached", legal)
		}
		delete(outcomes, legal)
	}
	if len(outcomes) > 0 {
		t.Errorf("reached %v", outcomes)
	}
}

// TestCrashUndoesWhatRestsOnAnUndoneName: a directory whose entry was never synced takes all in it along, however durable.
func TestCrashUndoesWhatRestsOnAnUndoneName(t *testing.T) {
	lost := 0
	for seed := range uint64(50) {
		disk := vfs.NewMemory(seed)
		check(t, disk.MkdirAll("/d"))
		check(t, vfs.WriteAtomic(disk, "/d/a", []byte("x"))) // syncs the file and /d, not /
		exists, err := vfs.Exists(disk.Crash(vfs.Adversarial), "/d/a")
		check(t, err)
		if !exists {
			lost++
		}
	}
	if lost == 0 || lost == 50 {
		t.Errorf("lost %d times of 50, want some", lost)
	}
}

// TestSyncAllCoversEverythingBelow, and nothing beside it.
func TestSyncAllCoversEverythingBelow(t *testing.T) {
	lost := 0
	for seed := range uint64(50) {
		disk := vfs.NewMemory(seed)
		for _, dir := range []string{"/data/t-0", "/data/t-1", "/other"} {
			check(t, disk.MkdirAll(dir))
			check(t, second(created(t, disk, dir+"/a").WriteAt([]byte("x"), 0)))
		}
		check(t, disk.SyncDir("/"))
		check(t, disk.SyncAll("/data"))
		after := disk.Crash(vfs.Adversarial)
		for _, name := range []string{"/data/t-0/a", "/data/t-1/a"} {
			if got, err := vfs.ReadFile(after, name, 10); err != nil || string(got) != "x" {
				t.Fatalf("seed %d: %s is %q, %v after SyncAll", seed, name, got, err)
			}
		}
		if got, err := vfs.ReadFile(after, "/other/a", 10); err != nil || string(got) != "x" {
			lost++
		}
	}
	if lost == 0 {
		t.Error("SyncAll of one directory made another durable")
	}
}

// TestWriteAtomicSurvivesACutAtEveryChange: the file holds the old or the new bytes, and the new ones once it returned.
func TestWriteAtomicSurvivesACutAtEveryChange(t *testing.T) {
	for _, mode := range vfs.CrashModes {
		for cut := 0; ; cut++ {
			var returned error
			for seed := range uint64(30) {
				disk := vfs.NewMemory(seed)
				check(t, vfs.WriteAtomic(disk, "/a", []byte("old")))
				disk.FailAfter(cut, vfs.ErrCrashed)
				returned = vfs.WriteAtomic(disk, "/a", []byte("newer"))
				got, err := vfs.ReadFile(disk.Crash(mode), "/a", 100)
				check(t, err)
				if text := string(got); text != "newer" && (text != "old" || returned == nil) {
					t.Fatalf("%v, cut at change %d, seed %d: %q after %v", mode, cut, seed, text, returned)
				}
			}
			if returned == nil {
				break
			}
			if !errors.Is(returned, vfs.ErrCrashed) {
				t.Fatalf("cut at change %d: %v, want ErrCrashed", cut, returned)
			}
		}
	}
}

// TestCrashAtSync: the sync at which the power goes reports it, and its bytes may be there or not.
func TestCrashAtSync(t *testing.T) {
	kept := 0
	for seed := range uint64(40) {
		disk := vfs.NewMemory(seed)
		disk.CrashAtSync(3)
		file := created(t, disk, "/a")
		check(t, disk.SyncDir("/"))
		check(t, second(file.WriteAt([]byte("one"), 0)))
		check(t, file.Sync())
		check(t, second(file.WriteAt([]byte("two"), 3)))
		if err := file.Sync(); !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("third sync: %v, want ErrCrashed", err)
		}
		if got := disk.SyncPoints(); got != 3 {
			t.Errorf("%d sync points, want 3", got)
		}
		after := disk.Crash(vfs.Adversarial)
		got, err := vfs.ReadFile(after, "/a", 100)
		check(t, err)
		if string(got[:3]) != "one" {
			t.Fatalf("synced bytes are %q", got)
		}
		if string(got) == "onetwo" {
			kept++
		}
		again, err := after.Open("/a", os.O_RDWR)
		check(t, err)
		check(t, again.Sync())
	}
	if kept == 0 || kept == 40 {
		t.Errorf("the bytes being synced survived %d times of 40, want some", kept)
	}
}

// TestModified: a file has the time of its last change, also after a crash.
func TestModified(t *testing.T) {
	now := time.UnixMilli(1000)
	disk := vfs.NewMemory(1)
	disk.SetClock(func() time.Time { return now })
	file := created(t, disk, "/a")
	for range 3 {
		entries, err := disk.List("/")
		check(t, err)
		if !entries[0].Modified.Equal(now) {
			t.Errorf("modified at %v, want %v", entries[0].Modified, now)
		}
		now = now.Add(time.Second)
		check(t, second(file.WriteAt([]byte("a"), 0)))
	}
	check(t, disk.SyncAll("/"))
	entries, err := disk.Crash(vfs.Adversarial).List("/")
	check(t, err)
	if !entries[0].Modified.Equal(now) {
		t.Errorf("modified at %v after a crash, want %v", entries[0].Modified, now)
	}
}

// TestFullDisk: a write that does not fit writes what does and says so; removing makes room, once nobody reads the file.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMemory(1)
	disk.SetCapacity(10)
	a, b := created(t, disk, "/a"), created(t, disk, "/b")
	check(t, second(a.WriteAt([]byte("1234567"), 0)))
	if n, err := b.WriteAt([]byte("abcdef"), 0); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v; want 3 and ENOSPC", n, err)
	}
	check(t, second(a.WriteAt([]byte("7654321"), 0))) // in place: needs no room
	if n, err := a.WriteAt([]byte("xyz"), 6); n != 1 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v; want 1 and ENOSPC", n, err)
	}
	check(t, disk.Remove("/a"))
	if _, err := b.WriteAt([]byte("d"), 3); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write while the removed file is open: %v, want ENOSPC", err)
	}
	check(t, a.Close())
	check(t, second(b.WriteAt([]byte("defghij"), 3)))
	check(t, b.Truncate(0))
	check(t, vfs.WriteAtomic(disk, "/b", []byte("0123456789")))
	check(t, b.Close())
	check(t, vfs.WriteAtomic(disk, "/c", nil))
	if err := vfs.WriteAtomic(disk, "/c", []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("atomic write on a full disk: %v, want ENOSPC", err)
	}
	if got, err := vfs.ReadFile(disk, "/c", 10); err != nil || len(got) != 0 {
		t.Errorf("after it: %q, %v; want the old file", got, err)
	}
	if got := disk.UsedBytes(); got != 10 {
		t.Errorf("%d bytes used, want 10", got)
	}
}

// TestInjectedErrors: the planned error comes after the planned number of changes; a failed sync stays failed.
func TestInjectedErrors(t *testing.T) {
	disk := vfs.NewMemory(1)
	file := created(t, disk, "/a")
	disk.FailAfter(1, syscall.EIO)
	check(t, second(file.WriteAt([]byte("a"), 0)))
	_, writeErr := file.WriteAt([]byte("b"), 1)
	for _, err := range []error{writeErr, file.Truncate(0), file.Sync(), disk.Rename("/a", "/b"), disk.Remove("/a"), disk.MkdirAll("/d"), disk.SyncDir("/")} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("change after the planned one: %v, want EIO", err)
		}
	}
	disk.FailAfter(0, nil)
	check(t, second(file.WriteAt([]byte("b"), 1)))
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync after a failed one: %v, want EIO for ever", err)
	}
	check(t, file.Close())
	again, err := disk.Open("/a", os.O_RDWR)
	check(t, err)
	check(t, again.Sync())
}

// TestKill: the end of a process closes its files and loses nothing, also in the middle of something.
func TestKill(t *testing.T) {
	disk := vfs.NewMemory(1)
	file := created(t, disk, "/a")
	check(t, second(file.WriteAt([]byte("written"), 0)))
	gone := errors.New("killed")
	disk.FailAfter(0, gone)
	for _, err := range []error{file.Sync(), disk.Rename("/a", "/b")} {
		if !errors.Is(err, gone) {
			t.Errorf("change by a killed process: %v, want that it is killed", err)
		}
	}
	disk.Kill()
	if _, err := file.Size(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("use of a file of a killed process: %v, want ErrClosed", err)
	}
	again, err := disk.Open("/a", os.O_RDWR)
	check(t, err)
	check(t, again.Sync())
	if got, err := vfs.ReadFile(disk, "/a", 10); err != nil || string(got) != "written" {
		t.Errorf("after the kill: %q, %v", got, err)
	}
}

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func check(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

func created(t failer, disk vfs.FS, name string) vfs.File {
	t.Helper()
	file, err := disk.Open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	check(t, err)
	return file
}

// filled draws the length of some bytes that say which step wrote them.
func filled(t *rapid.T, step int) []byte {
	return bytes.Repeat([]byte{byte(step + 1)}, rapid.IntRange(1, 13000).Draw(t, "length"))
}

// contents prints a disk's root directory.
func contents(t failer, disk vfs.FS) string {
	t.Helper()
	entries, err := disk.List("/")
	check(t, err)
	var text bytes.Buffer
	for _, entry := range entries {
		data, err := vfs.ReadFile(disk, "/"+entry.Name, 1<<20)
		check(t, err)
		fmt.Fprintf(&text, "%s %x\n", entry.Name, data)
	}
	return text.String()
}
