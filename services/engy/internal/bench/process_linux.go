package bench

import "syscall"

// dieWithUs ends a child when this process ends, in whatever way, and keeps an
// interrupt at the terminal from reaching it before us.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
