package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the kernel's CPU counters; it is the same on all of
// Linux's architectures that matter here.
const tick = 10 * time.Millisecond

// stat is what the kernel says of a process.
type stat struct {
	parent int
	// cpu is what the process took, reaped what its ended children did.
	cpu, reaped time.Duration
}

func statOf(pid int) (stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// The name in brackets may hold anything, brackets too.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("process %d: its counters cannot be read", pid)
	}
	n := func(i int) int {
		v, _ := strconv.Atoi(fields[i])
		return v
	}
	return stat{
		parent: n(1),
		cpu:    time.Duration(n(11)+n(12)) * tick,
		reaped: time.Duration(n(13)+n(14)) * tick,
	}, nil
}

// treeCPU is what a process and its children took, ended ones included.
func treeCPU(root int) (time.Duration, error) {
	s, err := statOf(root)
	if err != nil {
		return 0, err
	}
	sum := s.cpu + s.reaped
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("processes: %w", err)
	}
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		// Processes come and go while we look.
		if s, err := statOf(pid); err == nil && s.parent == root {
			sum += s.cpu
		}
	}
	return sum, nil
}

// busyCPU is what all processes of the machine took together.
func busyCPU() (time.Duration, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("machine: %w", err)
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	fields := strings.Fields(line)
	if len(fields) < 4 {
		return 0, fmt.Errorf("machine: its counters cannot be read")
	}
	var sum time.Duration
	for _, f := range fields[1:4] { // user, nice, system
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("machine: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// residentBytes is the memory that a process has in use, peakBytes the most that
// it had.
func residentBytes(pid int) (int64, error) { return statusBytes(pid, "VmRSS:") }
func peakBytes(pid int) (int64, error)     { return statusBytes(pid, "VmHWM:") }

func statusBytes(pid int, name string) (int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("process %d: memory: %w", pid, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d: the kernel does not tell its memory", pid)
}

// Machine is where a run took place.
type Machine struct {
	Cores int    `json:"cores"`
	CPU   string `json:"cpu"`
	Go    string `json:"go"`
	Load  string `json:"load"`
}

func machine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, CPU: "unknown", Load: "unknown"}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(raw)); len(f) > 2 {
			m.Load = strings.Join(f[:3], " ")
		}
	}
	return m
}
