package pglocal

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	sigFast      = syscall.SIGINT  // PostgreSQL: roll back, write out, end
	sigImmediate = syscall.SIGQUIT // PostgreSQL: end now, recover at the next start
)

// attr says how a program of the server is started. A server dies with us: the
// kernel sends it the signal for a fast shutdown. It has a process group of its
// own, so that Ctrl-C at a terminal reaches us and not the database under us.
func (u user) attr(server bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if server {
		a.Pdeathsig = sigFast
	}
	if u.other {
		a.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
	}
	if u.pass {
		a.AmbientCaps = []uintptr{passCapability()}
	}
	return a
}

// passCapability is the weaker of two capabilities that let a process pass
// closed folders, of those that we have; 0 when we have none. The stronger one
// is all that usual containers leave.
func passCapability() uintptr {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0
	}
	for _, c := range []uintptr{unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_OVERRIDE} {
		if data[0].Permitted&(1<<c) != 0 {
			return c
		}
	}
	return 0
}

// holdThread ties the goroutine to its thread until the returned function runs.
func holdThread() func() {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// alive tells whether pid is a server of this data directory: a server's
// working directory is its data.
func alive(pid int, data string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if os.IsPermission(err) {
		return syscall.Kill(pid, 0) != syscall.ESRCH
	}
	if err != nil {
		return false
	}
	return strings.TrimSuffix(cwd, "/") == data
}
