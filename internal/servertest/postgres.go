package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// PostgreSQL starts a PostgreSQL with an empty database for this test alone: see [NewPostgreSQL].
func PostgreSQL(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := NewPostgreSQL(settings...)
	need(t, err)
	return adopt(t, s)
}

// NewPostgreSQL starts a PostgreSQL. User postgres needs no password, and the database is postgres: see
// [PostgresURL]. A setting is name=value, as in its configuration. Close it at the end.
func NewPostgreSQL(settings ...string) (*Server, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := ownDir()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir = dir
	if err := runAs(cmd, "postgres", dir); err != nil {
		return nil, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return startPostgres(bin, dir, settings)
}

// HasPostgreSQL returns an [ErrMissing] if PostgreSQL isn't installed.
func HasPostgreSQL() error {
	_, err := postgresBin()
	return err
}

// postgresBin returns the folder of PostgreSQL's programs, of which PATH has only some.
func postgresBin() (string, error) {
	initdb, err := find("initdb", "postgresql", "/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return "", err
	}
	return filepath.Dir(initdb), nil
}

// startPostgres starts a server on the data in a folder.
func startPostgres(bin, dir string, settings []string) (*Server, error) {
	port := ReservePort()
	port.First.Close()
	s := &Server{name: "PostgreSQL", port: port, dir: dir, user: "postgres"}
	s.line = func() []string {
		line := []string{
			filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port.Number),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "shared_buffers=32MB",
		}
		for _, setting := range settings {
			line = append(line, "-c", setting)
		}
		return line
	}
	s.ready = func() (bool, error) {
		out, err := exec.Command(filepath.Join(bin, "pg_isready"), "-h", "127.0.0.1", "-p", strconv.Itoa(port.Number), "-U", "postgres").CombinedOutput()
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

// PostgresURL returns the URL of the database of a PostgreSQL at an address.
func PostgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// PostgresReplica starts an asynchronous replica of a PostgreSQL. Promote it with [PromotePostgres].
func PostgresReplica(t testing.TB, primary *Server) *Server {
	t.Helper()
	bin, err := postgresBin()
	need(t, err)
	dir, err := ownDir()
	need(t, err)
	cmd := exec.Command(filepath.Join(bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(primary.Port()), "-U", "postgres", "-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast")
	cmd.Dir = dir
	need(t, runAs(cmd, "postgres", dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	s, err := startPostgres(bin, dir, []string{"hot_standby=on"})
	need(t, err)
	return adopt(t, s)
}

// PromotePostgres makes a replica the primary, and waits until it is.
func PromotePostgres(t testing.TB, replica *Server) {
	t.Helper()
	bin, err := postgresBin()
	need(t, err)
	cmd := exec.Command(filepath.Join(bin, "pg_ctl"), "promote", "-w", "-D", filepath.Join(replica.Dir(), "data"))
	cmd.Dir = replica.Dir()
	need(t, runAs(cmd, "postgres", replica.Dir()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_ctl promote: %v\n%s", err, out)
	}
}
