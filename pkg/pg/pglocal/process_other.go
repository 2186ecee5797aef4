//go:build !linux

package pglocal

import "syscall"

const (
	sigFast      = syscall.SIGINT
	sigImmediate = syscall.SIGQUIT
)

// attr cannot tie the server's life to ours here: after a SIGKILL of ours the
// server goes on, and the next start says which process to stop.
func (u user) attr(bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if u.other {
		a.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
	}
	return a
}

func passCapability() uintptr { return 0 }

func holdThread() func() { return func() {} }

func alive(pid int, _ string) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }
