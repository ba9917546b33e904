//go:build unix

package dbserver

import (
	"io"
	"os"
	"os/exec"
	"syscall"
)

// removerScript waits until the other end of its standard input is closed,
// which even kill -9 does, and removes the folder. It tries more than once,
// since the servers may still be dying and writing.
const removerScript = `
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf -- "$1" && exit 0
	sleep 1
done
exit 1`

// remover is a process that outlives us to remove a folder.
type remover struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer
}

func newRemover(dir string) (*remover, error) {
	r := &remover{dir: dir, cmd: exec.Command("/bin/sh", "-c", removerScript, "sh", dir)}
	// Out of reach of Ctrl-C, and of whoever kills our process group.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r.cmd.Dir = "/"
	var err error
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return r, r.cmd.Start()
}

// remove removes the folder now.
func (r *remover) remove() error {
	_ = r.stdin.Close()
	if r.cmd.Wait() == nil {
		return nil
	}
	return os.RemoveAll(r.dir) // says what is in the way
}
