package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A write is a write that a resource accepted.
type write struct {
	Token int64
	By    string
}

// A register is a value that clients overwrite under a lock. Its last write is its value.
type register []write

// playResource is a process that serves registers over HTTP. A PUT of token and by to /NAME
// writes. A GET returns all writes. If settings is "checks", a write with a smaller token than an
// earlier one is refused with 409.
func playResource(settings string) error {
	var mu sync.Mutex
	registers := map[string]register{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodPut {
			_ = json.NewEncoder(w).Encode(registers[r.URL.Path])
			return
		}
		token, err := strconv.ParseInt(r.FormValue("token"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if settings == "checks" && token < registers[r.URL.Path].largest() {
			w.WriteHeader(http.StatusConflict)
			return
		}
		registers[r.URL.Path] = append(registers[r.URL.Path], write{token, r.FormValue("by")})
	})}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = srv.Close()
	}()
	fmt.Println(l.Addr())
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func (r register) largest() int64 {
	largest := int64(0)
	for _, w := range r {
		largest = max(largest, w.Token)
	}
	return largest
}

// ordered reports whether no write came after one of a later holder.
func (r register) ordered() bool {
	return slices.IsSortedFunc(r, func(a, b write) int { return int(a.Token - b.Token) })
}

// last returns who wrote the value.
func (r register) last() string {
	if len(r) == 0 {
		return ""
	}
	return r[len(r)-1].By
}

func (r register) String() string {
	names := make([]string, len(r))
	for i, w := range r {
		names[i] = w.By
	}
	return strings.Join(names, " and ")
}

// A resource is the test's view of such a process.
type resource struct {
	*process
	addr string
}

func newResource(s *stage, settings string) (*resource, error) {
	p, err := startChild(s.program, "resource", settings)
	if err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(p.out).ReadString('\n')
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("the resource did not start: %w\n%s", err, p.output())
	}
	return &resource{p, strings.TrimSpace(addr)}, nil
}

// read returns the writes to a register.
func (r *resource) read(ctx context.Context, name string) (register, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var reg register
	return reg, json.NewDecoder(resp.Body).Decode(&reg)
}
