package pgtest

import (
	"io"
	"os/exec"
	"syscall"
)

// guard starts a shell that waits for this process to end, however it ends,
// then for the server to be gone, and removes the cluster's folder. The shell
// notices by its standard input, which nobody else holds open.
func guard(dir string) (io.Closer, error) {
	const script = `read -r _
		pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
		n=0
		while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
		rm -rf "$1"`
	cmd := exec.Command("/bin/sh", "-c", script, "guard", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return in, nil
}
