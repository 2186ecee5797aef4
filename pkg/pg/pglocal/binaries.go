package pglocal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// binaries are the two programs that this package runs.
type binaries struct{ postgres, initdb string }

// findBinaries looks for both programs in one folder. A cluster that exists
// needs programs of its own major version.
func findBinaries(binDir, data string) (binaries, error) {
	want := ""
	if b, err := os.ReadFile(filepath.Join(data, "PG_VERSION")); err == nil {
		want = strings.TrimSpace(string(b))
	}
	folders := []string{binDir}
	if binDir == "" {
		folders = candidates()
	}
	var other []string
	for _, f := range folders {
		b, ok := inFolder(f)
		if !ok {
			continue
		}
		if want == "" {
			return b, nil
		}
		v := majorVersion(b.postgres)
		if v == want {
			return b, nil
		}
		other = append(other, v)
	}
	if len(other) > 0 {
		return binaries{}, fmt.Errorf("data was written by PostgreSQL %s, and only version %s is installed; install version %s, or choose another directory",
			want, strings.Join(slices.Compact(other), ", "), want)
	}
	return binaries{}, fmt.Errorf("no PostgreSQL server programs (postgres, initdb) in %s\ninstall them with:\n\n    %s",
		strings.Join(folders, ", "), installCommand())
}

func inFolder(dir string) (binaries, bool) {
	b := binaries{postgres: filepath.Join(dir, "postgres"), initdb: filepath.Join(dir, "initdb")}
	for _, p := range []string{b.postgres, b.initdb} {
		if st, err := os.Stat(p); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return binaries{}, false
		}
	}
	return b, true
}

// candidates lists folders in the order of trust: what the user's PATH says,
// what pg_config says, then where distributions put them, newest first. Links
// are followed, because only one of the two programs may be linked into PATH.
func candidates() []string {
	var dirs []string
	add := func(dir string) {
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, program := range []string{"postgres", "initdb"} {
		p, err := exec.LookPath(program)
		if err != nil {
			continue
		}
		add(filepath.Dir(p))
		if real, err := filepath.EvalSymlinks(p); err == nil {
			add(filepath.Dir(real))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		add(strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // PGDG packages of Red Hat
		"/usr/libexec/postgresql*",           // Alpine
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on ARM
		"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
		"/Library/PostgreSQL/*/bin",          // EDB installer
		"/usr/local/pgsql/bin",               // from source
		"/usr/bin", "/usr/local/bin", "/opt/postgresql/bin",
	} {
		// The patterns are constant and well formed.
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return versionIn(b) - versionIn(a) })
		for _, f := range found {
			add(f)
		}
	}
	return dirs
}

// versionIn reads the first number in a path, 0 when there is none.
func versionIn(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, err := strconv.Atoi(digits[0])
	if err != nil {
		return 0
	}
	return n
}

func majorVersion(postgres string) string {
	out, err := exec.Command(postgres, "--version").Output()
	if err != nil {
		return "unknown"
	}
	// "postgres (PostgreSQL) 15.18 (Debian …)"
	_, rest, _ := strings.Cut(string(out), ") ")
	major, _, _ := strings.Cut(strings.TrimSpace(rest), ".")
	return major
}

// installCommand is what to type on this kind of machine.
func installCommand() string {
	if runtime.GOOS == "darwin" {
		return "brew install postgresql@17"
	}
	for _, m := range []struct{ program, command string }{
		{"apt-get", "sudo apt-get update && sudo apt-get install -y --no-install-recommends postgresql"},
		{"dnf", "sudo dnf install -y postgresql-server"},
		{"yum", "sudo yum install -y postgresql-server"},
		{"apk", "apk add postgresql"},
		{"pacman", "sudo pacman -S --noconfirm postgresql"},
		{"zypper", "sudo zypper install -y postgresql-server"},
	} {
		if _, err := exec.LookPath(m.program); err == nil {
			return m.command
		}
	}
	return "your system's package for the PostgreSQL server, version 13 or newer"
}
