package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// MariaDB starts a MariaDB for this test alone: see [NewMariaDB].
func MariaDB(t testing.TB, options ...string) *Server {
	t.Helper()
	s, err := NewMariaDB(options...)
	need(t, err)
	return adopt(t, s)
}

// NewMariaDB starts a MariaDB. User root needs no password, and the database is test: see [MariaDSN]. An option is one
// of the command line, such as --innodb-lock-wait-timeout=2. Close it at the end.
func NewMariaDB(options ...string) (*Server, error) {
	mariadbd, err := find("mariadbd", "mariadb-server", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}
	install, err := find("mariadb-install-db", "mariadb-server")
	if err != nil {
		return nil, err
	}
	dir, err := ownDir()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	tmp := "--tmpdir=" + dir // a server that starts deletes the temporary tables that it finds there, also those of others
	cmd := exec.Command(install, "--no-defaults", "--datadir="+data, tmp, "--auth-root-authentication-method=normal", "--skip-name-resolve", "--innodb-log-file-size=16M")
	cmd.Dir = dir
	if err := runAs(cmd, "mysql", dir); err != nil {
		return nil, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	port := ReservePort()
	port.First.Close()
	s := &Server{name: "MariaDB", port: port, dir: dir, user: "mysql"}
	s.line = func() []string {
		return append([]string{
			mariadbd, "--no-defaults", "--datadir=" + data, "--port=" + strconv.Itoa(port.Number), "--bind-address=127.0.0.1",
			"--socket=" + filepath.Join(dir, "sock"), "--pid-file=" + filepath.Join(dir, "pid"), "--skip-name-resolve", tmp,
			"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M",
		}, options...)
	}
	s.ready = func() (bool, error) {
		admin, err := find("mariadb-admin", "mariadb-client")
		if err != nil {
			return false, err
		}
		out, err := exec.Command(admin, "--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-P", strconv.Itoa(port.Number), "-u", "root", "ping").CombinedOutput()
		if err != nil {
			return false, fmt.Errorf("%w: %s", err, out)
		}
		return true, nil
	}
	if err := s.Start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// MariaDSN returns the data source name of a MariaDB at an address, for the driver go-sql-driver/mysql.
func MariaDSN(addr string) string { return "root@tcp(" + addr + ")/test?parseTime=true" }
