package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// The statuses that the command exits with. docs/cli.md has them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitState       = 4
	exitAway        = 5
	exitFindings    = 6
	exitInterrupted = 130
)

// A usageError is a mistake in the flags or arguments. Nothing was done.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// packages takes out of an error which package it is of.
var packages = strings.NewReplacer("inspect: ", "", "fromasynq: ", "", "scheduler: ", "", "signalbox: ", "")

// explain returns the status to exit with, and what to say.
func (a *app) explain(err error) (code int, text string) {
	text = packages.Replace(err.Error())
	var wrong *usageError
	var lost *awayError
	var part *partError
	var found *findingsError
	said := ""
	if errors.As(err, &part) {
		said = part.said + ": "
	}
	switch {
	case a.stopped.Err() != nil && a.began:
		return exitInterrupted, strings.TrimSuffix("interrupted: "+said, ": ")
	case errors.As(err, &found):
		return exitFindings, text
	case errors.As(err, &lost):
		return exitAway, text
	case errors.Is(err, inspect.ErrFile): // the error of a line in it may be one of usage
		return exitFailure, text
	case errors.As(err, &wrong):
		return exitUsage, text
	case errors.Is(err, signalbox.ErrInvalid):
		return exitUsage, inFlags(a.running, text)
	case !a.began:
		return exitUsage, text + "; see signalbox --help"
	case errors.Is(err, inspect.ErrNoQueue), errors.Is(err, inspect.ErrNoJob), errors.Is(err, inspect.ErrNoWorker), errors.Is(err, inspect.ErrNoEntry), errors.Is(err, inspect.ErrNoOutbox), errors.Is(err, inspect.ErrNoFlow):
		return exitNotFound, text
	case errors.Is(err, inspect.ErrState), errors.Is(err, inspect.ErrTaken), errors.Is(err, inspect.ErrKeyTaken), errors.Is(err, inspect.ErrInUse), errors.Is(err, inspect.ErrInBatch):
		return exitState, text
	case away(err) && errors.Is(err, inspect.ErrPartial): // it says what is left out, and which server is away
		return exitAway, text
	case away(err):
		return exitAway, said + a.connection.away(err).Error()
	}
	return exitFailure, text + hint(err)
}

// A partError ends work that had begun.
type partError struct {
	said string // how far it came, and how to go on
	err  error
}

func (e *partError) Error() string { return e.said + ": " + e.err.Error() }
func (e *partError) Unwrap() error { return e.err }

// An awayError says that Redis can't be reached.
type awayError struct {
	where, why string
	err        error
}

// away returns the error that says so of this connection.
func (c *connection) away(err error) error {
	why := short(err)
	if (why == late || why == hungUp) && c.secured {
		why += " (is there TLS on that port?)"
	}
	return &awayError{c.where, why, err}
}

func (e *awayError) Error() string {
	return fmt.Sprintf("Redis at %s doesn't answer: %s; look whether it runs, and at --redis, REDIS_URL and --timeout", e.where, e.why)
}

func (e *awayError) Unwrap() error { return e.err }

// away reports whether err says that no server answered, and not what a server said.
func away(err error) bool {
	var file *fs.PathError // of a file or a program; its system error looks like one of a network
	var program *exec.Error
	if errors.As(err, &file) || errors.As(err, &program) {
		return false
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, net.ErrClosed) {
		return true
	}
	text := err.Error()
	for _, sign := range []string{"all sentinels specified", "CLUSTERDOWN", "MASTERDOWN", "LOADING ", "cluster has no nodes", "connection refused"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

const (
	late   = "no reply in time"
	hungUp = "it closes the connection"
)

// short returns what is the matter with a connection, without the addresses that the error repeats.
func short(err error) string {
	var op *net.OpError
	var network net.Error // os.ErrDeadlineExceeded is one, without a net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return late
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return hungUp
	}
	return err.Error()
}

const rights = "; " + guide + "operations/access.md has the rights that a user needs"

// hint returns what to do about an error of Redis, if that is known.
func hint(err error) string {
	text := err.Error()
	for _, h := range []struct{ sign, do string }{
		{"cluster support disabled", "; this Redis is no Cluster: leave --cluster out"},
		{"NOAUTH", "; give REDIS_URL a user and a password, or set REDIS_PASSWORD"},
		{"WRONGPASS", "; look at the user and password of --redis, or of REDIS_URL, REDIS_USERNAME and REDIS_PASSWORD"},
		{"NOPERM", rights},
		{"The user executing the script can't", rights},
		{"ACL failure in script", rights},
		{"READONLY", "; this is a replica: connect to its master"},
		{"signed by unknown authority", "; give --tls-ca the certificate of the authority that signed it"},
		{"failed to verify certificate", "; --tls-server-name says which name it must have"},
		{"does not look like a TLS handshake", "; there is no TLS on that port: use redis:// and leave the --tls flags out"},
	} {
		if strings.Contains(text, h.sign) {
			return h.do
		}
	}
	return ""
}

// oneLine returns s in one line that is safe to print.
func oneLine(s string) string {
	return clean(strings.Join(strings.Fields(s), " "))
}
