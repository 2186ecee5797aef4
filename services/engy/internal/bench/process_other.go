//go:build !linux

package bench

import "syscall"

// dieWithUs has nothing to offer here: what is measured is Linux's /proc, and a
// run ends before it begins.
func dieWithUs() *syscall.SysProcAttr { return nil }
