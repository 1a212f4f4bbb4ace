package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// readCommand reads one request in the form that clients send: an array of bulk strings.
// raw is the bytes that were read.
func readCommand(r *bufio.Reader) (args []string, raw []byte, err error) {
	n, raw, err := readHeader(r, '*', nil)
	if err != nil {
		return nil, nil, err
	}
	args = make([]string, n)
	for i := range args {
		var size int
		if size, raw, err = readHeader(r, '$', raw); err != nil {
			return nil, nil, err
		}
		start := len(raw)
		if raw, err = readN(r, size+2, raw); err != nil {
			return nil, nil, err
		}
		args[i] = string(raw[start : start+size])
	}
	return args, raw, nil
}

// readHeader reads a line such as "*3" and appends it to raw.
func readHeader(r *bufio.Reader, kind byte, raw []byte) (int, []byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if line[0] != kind {
		return 0, nil, fmt.Errorf("redistest: got %q where a request has %q", line, kind)
	}
	n, err := number(line)
	if err != nil || n < 0 {
		return 0, nil, fmt.Errorf("redistest: bad length %q in a request", line)
	}
	return n, append(raw, line...), nil
}

// readReply reads one whole reply, in RESP2 or RESP3, and appends it to raw.
func readReply(r *bufio.Reader, raw []byte) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	raw = append(raw, line...)
	children := 0
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return raw, nil
	case '$', '!', '=':
		n, err := number(line)
		if err != nil || n < 0 {
			return raw, err
		}
		return readN(r, n+2, raw)
	case '*', '~', '>':
		children, err = number(line)
	case '%':
		children, err = number(line)
		children *= 2
	case '|': // attributes come before the value that they belong to
		children, err = number(line)
		children = 2*children + 1
	default:
		err = fmt.Errorf("redistest: unknown type in the reply %q", line)
	}
	if err != nil {
		return nil, err
	}
	for range children {
		if raw, err = readReply(r, raw); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// number returns the number in a line such as "$12\r\n".
func number(line []byte) (int, error) {
	return strconv.Atoi(strings.TrimRight(string(line[1:]), "\r\n"))
}

func readN(r *bufio.Reader, n int, raw []byte) ([]byte, error) {
	start := len(raw)
	raw = append(raw, make([]byte, n)...)
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}

// ask sends one command on its own connection and returns the text of the reply: all its
// strings, one in each line. It is for the set-up, where a client's retries and pools
// would interfere.
func ask(addr string, args ...string) (string, error) {
	return askWithin(5*time.Second, addr, args...)
}

func askWithin(d time.Duration, addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, d)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		return "", err
	}
	if _, err := conn.Write(command(args...)); err != nil {
		return "", err
	}
	raw, err := readReply(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	text := replyText(raw)
	if raw[0] == '-' {
		return "", errors.New(text)
	}
	return text, nil
}

// command encodes a request.
func command(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// replyText returns the payload of a RESP2 reply, without its framing.
func replyText(raw []byte) string {
	var out []string
	for line := range strings.Lines(string(raw)) {
		switch line[0] {
		case '*', '$':
		case '+', '-', ':':
			out = append(out, strings.TrimRight(line[1:], "\r\n"))
		default:
			out = append(out, strings.TrimRight(line, "\r\n"))
		}
	}
	return strings.Join(out, "\n")
}
