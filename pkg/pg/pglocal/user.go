package pglocal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// user is the system user that the server runs as. PostgreSQL refuses to run as
// root, so root lends it an ordinary one.
type user struct {
	uid, gid int
	// other says that this is not the user we are.
	other bool
	// pass says that the user may not enter a folder above the data, and needs
	// one capability to get there.
	pass bool
}

func chooseUser(dir string) (user, error) {
	if os.Geteuid() != 0 {
		return user{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.Atoi(found.Uid)
		gid, errG := strconv.Atoi(found.Gid)
		if err := errors.Join(errU, errG); err != nil {
			return user{}, fmt.Errorf("user %s: %w", name, err)
		}
		u := user{uid: uid, gid: gid, other: true}
		u.pass = !u.mayEnter(dir)
		if u.pass && passCapability() == 0 {
			return user{}, fmt.Errorf("user %s may not enter %s, and this process cannot lend the right; choose a directory under /var/lib or /tmp", name, dir)
		}
		return u, nil
	}
	return user{}, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as; create one with: useradd --system postgres")
}

// mayEnter walks up from dir and asks each folder's bits. Access lists are not
// read: a wrong "no" only lends a capability that was not needed.
func (u user) mayEnter(dir string) bool {
	for {
		st, err := os.Stat(dir)
		if err != nil {
			return false
		}
		bit := fs.FileMode(0o001)
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			switch {
			case int(sys.Uid) == u.uid:
				bit = 0o100
			case int(sys.Gid) == u.gid:
				bit = 0o010
			}
		}
		if st.Mode()&bit == 0 {
			return false
		}
		up := filepath.Dir(dir)
		if up == dir {
			return true
		}
		dir = up
	}
}

// mkdir makes a folder that is this user's alone.
func (u user) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if !u.other {
		return nil
	}
	return os.Chown(path, u.uid, u.gid)
}

// claim makes the folder, or takes one that is there if it is provably this
// user's alone: it may stand where everybody can write.
func (u user) claim(path string) error {
	err := u.mkdir(path)
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || st.Mode().Perm()&0o077 != 0 || (ok && int(sys.Uid) != u.uid) {
		return fmt.Errorf("%s: is there and is not the private folder of user %d; remove it", path, u.uid)
	}
	return nil
}

// takeLock keeps other processes out of the directory until ours ends.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		owner := make([]byte, 16)
		n, _ := f.ReadAt(owner, 0)
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("directory is in use by process %s; stop it or choose another directory", owner[:n])
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The id is a courtesy to whoever is refused; the lock is the kernel's.
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
	return f, nil
}

// dropLock unlocks before it closes: the lock belongs to the open file, and a
// child that another goroutine is forking has that open too until its exec
// (flock(2)). Closing alone would leave the directory locked for as long.
func dropLock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
